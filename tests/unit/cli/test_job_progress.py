import pytest

from kafka_actors.cli.job_progress import JobProgress
from kafka_actors.job.messages import GroupState, PartitionStatus
from kafka_actors.job.status import JobStatus, ScalingStatus, WorkerStatus


def _worker(name: str, records: int) -> WorkerStatus:
    return WorkerStatus(name, 1, "n", True, [], records, 0, 0)


def _status(
    workers: dict[str, int], lags: list[int | None] | None = None, restarts: int = 0, gone: int = 0
) -> JobStatus:
    return JobStatus(
        state="running",
        group_id="g",
        group=GroupState("stable", 3, "m", None, 2, 1),
        workers=[_worker(*item) for item in workers.items()],
        partitions=[
            PartitionStatus("t", n, None, None, None, None, lag, "active") for n, lag in enumerate(lags or [])
        ],
        records=sum(workers.values()) + gone,
        value_bytes=0,
        connections={},
        restarts={"worker-0": restarts},
        actors={},
        scaling=ScalingStatus(workers=len(workers)),
    )


def test_the_rate_is_that_of_the_last_seconds() -> None:
    progress = JobProgress(window_s=5)
    for second in range(11):  # 100 a second, from second 5 on 300
        done = 100 * second + 200 * max(0, second - 5)
        reading = progress.observe(_status({"worker-0.1": done}), 50.0 + second)
    assert reading.records_per_s == pytest.approx(300)
    assert reading.elapsed_s == 10
    assert reading.records == 2000


def test_the_first_reading_has_no_rate() -> None:
    reading = JobProgress().observe(_status({"worker-0.1": 5_000}), 1.0)
    assert (reading.records_per_s, reading.records) == (0, 5_000)


def test_a_replaced_worker_counts_from_zero_and_the_total_keeps_what_the_dead_one_did() -> None:
    progress = JobProgress()
    progress.observe(_status({"worker-0.1": 900, "worker-1.1": 100}), 0.0)
    progress.observe(_status({"worker-1.1": 150}, gone=900), 1.0)
    reading = progress.observe(_status({"worker-0.2": 50, "worker-1.1": 200}, restarts=1, gone=900), 2.0)
    assert reading.records == 900 + 50 + 200
    assert reading.records_per_s == pytest.approx((50 + 100) / 2)
    assert [w.records_per_s for w in reading.workers] == pytest.approx([25, 50])
    assert reading.restarts == 1


def test_lag_is_the_sum_of_what_is_known_and_unknown_while_nothing_is() -> None:
    progress = JobProgress()
    assert progress.observe(_status({}, [None, None]), 0.0).lag is None
    assert progress.observe(_status({}, [None, 7]), 1.0).lag == 7
    assert progress.observe(_status({}, [0, 0]), 2.0).lag == 0
