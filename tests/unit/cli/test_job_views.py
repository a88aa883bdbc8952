import io
from typing import Any

import msgspec
import pytest
from msgspec import structs
from rich.console import Console, RenderableType

from kafka_actors.cli.job_views import LATENCY, LineView, count, fields, line, screen
from kafka_actors.cli.output import Output
from kafka_actors.job import Autoscale
from kafka_actors.job.status import (
    GroupState,
    JobStatus,
    JobTotals,
    PartitionStatus,
    ScalingStatus,
    WindowStatus,
    WorkerStatus,
)

ELAPSED_S = 12.34


def _partition(number: int, lag: int | None, reason: str = "") -> PartitionStatus:
    return PartitionStatus(
        "orders", number, "worker-0.1", 1_000, 900, 1_000 + (lag or 0), lag, "active", reason
    )


def _status(
    partitions: list[PartitionStatus],
    workers: int = 2,
    scaling: ScalingStatus | None = None,
    state: str = "running",
    waits_for: tuple[str, ...] = (),
    **totals: Any,
) -> JobStatus:
    return JobStatus(
        state=state,
        group_id="scorer",
        group=GroupState("stable", 3, "m", None, len(partitions), 1),
        workers=[
            WorkerStatus(f"worker-{n}.1", 100 + n, "n", n > 0, [], 5_000, 0, n, records_per_s=10.0)
            for n in range(workers)
        ],
        partitions=partitions,
        records=1_234_567,
        value_bytes=0,
        connections={},
        restarts={},
        actors={},
        scaling=scaling or ScalingStatus(workers=workers),
        waits_for=list(waits_for),
        totals=JobTotals(
            **{
                "records_per_s": 9_876.5,
                "lag": 42,
                "restarts": 1,
                "workers_ready": max(0, workers - 1),
                **totals,
            }
        ),
    )


def _drawn(what: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(what)
    drawn = console.file
    assert isinstance(drawn, io.StringIO)
    return drawn.getvalue()


def test_a_line_has_all_that_matters() -> None:
    assert line(_status([_partition(0, 42)]), ELAPSED_S) == (
        "  12.3 s  running  2 workers  1 partition  1,234,567 records  9,876/s  lag 42  restarts 1"
    )


def _starting(*waits_for: str) -> JobStatus:
    return _status([], state="starting", waits_for=waits_for)


def test_a_job_that_starts_is_shown_with_what_it_waits_for() -> None:
    status = _starting("a broker: h:9092: can't connect", "a place for worker-0: num_gpus=1")
    assert line(status, 3.0) == (
        "   3.0 s  starting  1 of 2 workers ready  waits for a broker: h:9092: can't connect  "
        "waits for a place for worker-0: num_gpus=1"
    )
    drawn = _drawn(screen(status, ELAPSED_S, 40))
    assert "waits for a broker: h:9092: can't connect" in drawn
    assert "worker-0.1 (starting)" in drawn
    assert fields(status, ELAPSED_S)["waits_for"] == status.waits_for


def test_lines_of_a_start_come_when_something_changes_and_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = LineView(Output(), 3.0, LATENCY)
    for elapsed, text in ((0.5, "x"), (2.0, "x"), (2.5, "x"), (3.0, "y"), (12.0, "y"), (13.0, "y")):
        view.show(_starting(text), elapsed)
    said = [each.split()[0] for each in capsys.readouterr().out.splitlines()]
    assert said == ["2.0", "3.0", "13.0"]


def test_the_fields_of_json_are_numbers() -> None:
    assert fields(_status([_partition(0, 42)]), ELAPSED_S) == {
        "state": "running",
        "group_id": "scorer",
        "elapsed_s": 12.34,
        "workers": 2,
        "workers_wanted": 2,
        "autoscale": None,
        "backlog_s": None,
        "partitions": 1,
        "records": 1_234_567,
        "records_per_s": 9_876.5,
        "lag": 42,
        "lag_s": None,
        "latency_p50_ms": None,
        "latency_p99_ms": None,
        "restarts": 1,
        "waits_for": None,
    }


def test_lag_in_time_and_latency_are_shown_where_they_are_known() -> None:
    known = _status([_partition(0, 42)], lag_s=3.14, latency_p50_ms=84.2, latency_p99_ms=1_310.0)
    assert "/s  lag 42 (3.1s)  latency 84ms, p99 1.3s  restarts 1" in line(known, ELAPSED_S)
    assert "/s  lag 42 (3.1s)  latency 84ms, p99 1.3s  restarts 1" in _drawn(screen(known, ELAPSED_S, 40))
    aged = "/s  lag 42 (3.1s)  age of the backlog 84ms, p99 1.3s  restarts 1"
    assert aged in line(known, ELAPSED_S, "age of the backlog")
    assert aged in _drawn(screen(known, ELAPSED_S, 40, "demo", "age of the backlog"))
    assert {k: v for k, v in fields(known, ELAPSED_S).items() if k.startswith(("lag_", "latency"))} == {
        "lag_s": 3.1,
        "latency_p50_ms": 84.2,
        "latency_p99_ms": 1_310.0,
    }


def test_a_partition_and_a_worker_are_shown_with_their_time() -> None:
    behind = msgspec.structs.replace(_partition(0, 5), lag_seconds=4000.0)
    status = _status([behind, msgspec.structs.replace(_partition(1, 0), lag_seconds=0.0)])
    worker = msgspec.structs.replace(status.workers[1], busy=0.874)
    status = msgspec.structs.replace(status, workers=[status.workers[0], worker])
    rows = _drawn(screen(status, ELAPSED_S, 40))
    assert [row.split()[6] for row in rows.splitlines() if row.startswith("orders")] == ["67m", "0s"]
    assert [row.split()[-2:] for row in rows.splitlines() if row.startswith("worker-")] == [
        ["-", "0"],
        ["87%", "1"],
    ]


def test_a_policy_is_shown_with_what_it_sees_and_why_it_waits() -> None:
    scaling = ScalingStatus(
        workers=3,
        autoscale=Autoscale(max=8),
        holding="workers wait for records",
        backlog_seconds=41.4,
        busy=0.3,
    )
    status = _status([_partition(0, 42)], scaling=scaling)
    assert "  2 workers (1..8)  1 partition" in line(status, ELAPSED_S)
    shown = fields(status, ELAPSED_S)
    assert (shown["autoscale"], shown["backlog_s"]) == ("1..8", 41)
    assert "workers 3 of 1..8  backlog 41 s  busy 30%  workers wait for records" in _drawn(
        screen(status, ELAPSED_S, 40)
    )


def test_a_reason_is_shown_as_it_is() -> None:
    drawn = _drawn(
        screen(_status([_partition(0, 1, "retrying: [fe80::1]:9092 [/x] refused")]), ELAPSED_S, 30), 200
    )
    assert "retrying: [fe80::1]:9092 [/x] refused" in drawn


def test_the_screen_shows_workers_and_partitions_with_the_columns_of_kafka() -> None:
    drawn = _drawn(screen(_status([_partition(0, 5), _partition(1, None, "no leader")]), ELAPSED_S, 40))
    for text in ("group scorer", "generation 3", "1,234,567", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"):
        assert text in drawn
    assert "worker-0.1 (starting)" in drawn
    assert "worker-1.1 (starting)" not in drawn
    assert "active: no leader" in drawn


@pytest.mark.parametrize("height", [16, 24, 60])
@pytest.mark.parametrize("partitions", [1, 12, 500])
def test_the_screen_fits_and_leaves_out_those_that_are_least_behind(height: int, partitions: int) -> None:
    drawn = _drawn(screen(_status([_partition(n, n) for n in range(partitions)]), ELAPSED_S, height))
    assert len(drawn.splitlines()) <= height
    rows = [row.split() for row in drawn.splitlines() if row.startswith("orders")]
    assert partitions - 1 in [int(row[1]) for row in rows]
    assert (len(rows) < partitions) == ("more that are less behind" in drawn)


def test_an_offset_that_is_not_known_is_not_shown_as_a_number() -> None:
    unknown = PartitionStatus("orders", 0, None, None, None, None, None, "waiting")
    row = next(
        r for r in _drawn(screen(_status([unknown]), ELAPSED_S, 40)).splitlines() if r.startswith("orders")
    )
    assert row.split() == ["orders", "0", "-", "-", "-", "-", "-", "-", "waiting"]


def test_what_is_in_flight_is_shown_with_the_record_that_holds_it_up() -> None:
    held = WindowStatus(1_200, 64, 3, 70, 12.0, "offset 5, key #1a2b3c4d")
    orders = structs.replace(_partition(0, 9), window=held)
    drawn = _drawn(screen(_status([orders, _partition(1, 2)], window=held), ELAPSED_S, 40), 200)
    assert (
        "in flight 1,200 records  64 calls  70 keys  3 parked  held for 12.0s by offset 5, key #1a2b3c4d"
        in drawn
    )
    assert "active, 1,200 records in flight, held for 12.0s by offset 5, key #1a2b3c4d" in drawn
    assert drawn.count("in flight") == 2


def test_counting() -> None:
    assert [count(n, "record") for n in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
