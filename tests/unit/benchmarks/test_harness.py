"""The benchmarks' own parts: that targets name what is measured, that topics are made as meant, and what is written."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import chart, common, readme, report, store
from benchmarks.__main__ import BENCHMARKS, chosen
from benchmarks.data import DEFAULT, KEY_BYTES, Data, Shelf, block_of, runs_of
from benchmarks.figures import figures_of
from benchmarks.profiles import summary
from benchmarks.reading import Check
from benchmarks.targets import BEST, TARGETS
from kafka_actors.testing import KafkaCluster

SECTIONS = {section.name: section for benchmark in BENCHMARKS for section in benchmark.sections()}


def section(quick: bool = False, **clients: list[float]) -> dict[str, Any]:
    """A result as `run_section` returns it."""
    return {
        "title": "A title",
        "notes": "",
        "at": "2026-01-31T00:00:00+00:00",
        "commit": "0123456",
        "machine": {"cpus": 2},
        "options": {"rounds": 5, "seconds": 10.0, "quick": quick},
        "stored_mb": {},
        "runs": [
            {"client": client, "round": n, "rate": rate, "records": 1, "seconds": 2.0, "cpu": 1.0}
            for client, rates in clients.items()
            for n, rate in enumerate(rates)
        ],
    }


def consumer_none(ours: float) -> dict[str, Any]:
    clients = {"Consumer": [ours] * 5, "confluent-kafka": [1e6] * 5, "Java": [3e6] * 5, "floor": [19e6] * 5}
    return {"consumer/none": section(**clients)}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(store, "README", tmp_path / "README.md")
    monkeypatch.setattr(store, "PAGES", tmp_path)
    store.README.write_text(f"# A project\n\n{readme.BEGIN}{readme.END}")
    return tmp_path


# ---------------------------------------------------------------- targets and sections


def test_each_target_is_about_clients_that_its_section_runs() -> None:
    for target in TARGETS:
        clients = SECTIONS[target.section].clients
        assert target.client in clients, target.key
        assert target.against in (None, BEST, *clients), target.key


def test_targets_are_told_apart_by_their_keys() -> None:
    assert len({target.key for target in TARGETS}) == len(TARGETS)


def test_clients_that_run_only_once_have_no_target() -> None:
    for target in TARGETS:
        assert not {target.client, target.against} & SECTIONS[target.section].once, target.key


def test_a_name_chooses_its_sections_and_an_unknown_one_ends_the_program() -> None:
    assert [s.name for s in chosen(["job", "consumer/zstd"])] == ["consumer/zstd", "job/none", "job/zstd"]
    assert [s.name for s in chosen([])] == list(SECTIONS)
    with pytest.raises(SystemExit, match="'consume': there are consumer/none"):
        chosen(["consume"])


# ---------------------------------------------------------------- topics


@pytest.mark.parametrize("partitions", [1, 8, 512])
@pytest.mark.parametrize("batch_size", [DEFAULT, 262_144])
def test_records_come_by_full_batches_whatever_the_number_of_partitions(
    partitions: int, batch_size: int
) -> None:
    data = Data(partitions=partitions, batch_size=batch_size, records=3_000_001)
    per_batch = batch_size // (data.record_bytes + 12)
    counts = dict.fromkeys(range(partitions), 0)
    short = 0
    for partition, rows in runs_of(data):
        counts[partition] += rows.stop - rows.start
        short += rows.stop - rows.start < per_batch
    assert sum(counts.values()) == data.records
    assert max(counts.values()) - min(counts.values()) <= per_batch
    assert short <= 1  # at the end of the topic


@pytest.mark.parametrize("size", [100, 1_000, 50_000])
def test_values_and_keys_have_their_sizes_and_are_the_same_each_time(size: int) -> None:
    values, keys = block_of(size)
    assert {len(value) for value in values} == {size}
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert len(set(keys)) == len(keys) == len(values)
    assert block_of(size) == (values, keys)
    json.loads(values[-1])


def test_a_smoke_run_has_records_for_each_partition() -> None:
    counts = {p: rows.stop - rows.start for p, rows in runs_of(Data(partitions=512).smaller(0.0001))}
    assert len(counts) == 512
    assert min(counts.values()) > 0


def test_a_check_sees_what_is_missing_and_what_is_out_of_order() -> None:
    def read(*values: bytes) -> Check:
        check = Check(expected)
        for value in values:
            check.add(0, 1, value)
        return check

    expected: dict[int, tuple[int, int]] = {0: (0, 0)}
    whole = read(b"one", b"two")
    expected = {0: whole.found(0)}
    assert read(b"one", b"two").complete
    read(b"one", b"two").verify()
    assert not read(b"one").complete
    for wrong in (read(b"one"), read(b"two", b"one"), read(b"one", b"twO")):
        with pytest.raises(SystemExit, match="something else"):
            wrong.verify()


# ---------------------------------------------------------------- what is written


def test_the_report_says_what_was_reached_and_what_not() -> None:
    text = report.markdown(consumer_none(ours=10e6))
    assert (
        "| Consumer against confluent-kafka, plain | at least 12.00 x | 10.00 x (10.00 x to 10.00 x)" in text
    )
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| Consumer")}
    assert "**no**" in lines["Consumer against confluent-kafka, plain"]
    assert "| yes |" in lines["Consumer against Java's ConsumerPerformance, plain"]
    assert "| Consumer | 5 | 10 (10-10) | 0.5 (0.5-0.5) |" in text
    assert "smoke run" not in text


def test_a_smoke_runs_report_says_that_it_is_one() -> None:
    assert "**A smoke run" in report.markdown({"consumer/none": section(quick=True, Consumer=[1.0])})


def test_the_chart_is_well_formed_and_its_bars_are_to_scale() -> None:
    root = ET.fromstring(chart.svg(chart.bars_of(consumer_none(ours=9.5e6))))
    bars = root.findall("{http://www.w3.org/2000/svg}rect")
    widths = {bar.get("class"): float(bar.get("width", 0)) for bar in bars if bar.get("class") != "other"}
    assert widths["ours"] == pytest.approx(widths["floor"] / 2, rel=0.01)
    assert "prefers-color-scheme: dark" in ET.tostring(root, encoding="unicode")


def test_the_summary_of_a_profile_has_the_share_of_threads_and_functions() -> None:
    raw = "thread (0x1): main;run (a.py:1);crc (x.c) 30\nthread (0x2): fetch;recv (libc.so) 10\nno stack\n"
    said = summary(raw)
    assert " 75.0%  main" in said
    assert " 25.0%  recv (libc.so)" in said
    assert summary("") == "no samples\n"


def test_threads_of_one_name_are_one_in_a_profile_whatever_their_numbers() -> None:
    stack = 'process {0}:"ray::WorkerActor";thread ({0}): fetch-1;recv (libc.so) 10\n'
    assert "100.0%  ray::WorkerActor fetch-1" in summary(stack.format(17) + stack.format(18))
    command = (
        'process 9:"/x/python -m benchmarks.client benchmarks.idle:job {}";thread (9): loop;f (a.py:1) 1\n'
    )
    assert "100.0%  benchmarks.idle:job loop" in summary(command)


# ---------------------------------------------------------------- the guard


def test_the_check_passes_on_what_was_accepted_and_names_what_fell_later(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.write(store.LATEST, consumer_none(ours=15e6))
    store.accept()
    assert store.check() == 0
    store.write(store.LATEST, consumer_none(ours=10e6))
    assert store.check() == 1
    said = capsys.readouterr().out
    assert "fell: Consumer against confluent-kafka, plain: 15.00 x in the baseline, 10.00 x now" in said
    assert (results / "baseline.svg").exists()
    assert (
        "| Consumer against confluent-kafka, plain | 15.00 x | 12.00 x |"
        in (results / "README.md").read_text()
    )


def test_the_check_has_an_exit_code_of_its_own_where_there_is_nothing_to_compare(results: Path) -> None:
    assert store.check() == 2
    store.write(store.LATEST, consumer_none(ours=15e6))
    store.accept()
    (results / "latest.json").unlink()
    assert store.check() == 2


def test_what_was_not_measured_again_stays_in_the_baseline(results: Path) -> None:
    store.write(store.LATEST, consumer_none(ours=15e6))
    store.accept()
    store.write(store.LATEST, {"idle": section(Consumer=[1.0])})
    store.accept()
    assert list(store.load(store.BASELINE)) == ["consumer/none", "idle"]
    assert "consumer/none" in (results / "baseline.md").read_text()


def test_short_runs_are_not_accepted_as_a_baseline(results: Path) -> None:
    short = consumer_none(ours=15e6)
    short["consumer/none"]["options"]["rounds"] = 1
    store.write(store.LATEST, short)
    with pytest.raises(SystemExit, match="fewer rounds or seconds than the defaults: consumer/none"):
        store.accept()
    assert not (results / "baseline.json").exists()


def test_the_committed_baseline_is_of_sections_that_there_are() -> None:
    assert set(store.load(store.BASELINE)) <= set(SECTIONS)


def test_figures_are_of_all_targets() -> None:
    assert set(figures_of(TARGETS, {})) == set(TARGETS)


# ---------------------------------------------------------------- rounds


def test_clients_warm_up_first_and_what_they_share_is_open_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common.time, "sleep", lambda _: None)
    monkeypatch.setattr(common, "commit", lambda: "0123456")
    seen: list[str] = []

    @contextmanager
    def beside(_: common.Stage) -> Iterator[None]:
        seen.append("open")
        yield
        seen.append("closed")

    def client(name: str) -> common.Client:
        def run(_: common.Stage) -> dict[str, Any]:
            seen.append(name)
            return {"rate": float(len(seen))}

        return run

    clients = {"Consumer": client("Consumer"), "other": client("other"), "slow": client("slow")}
    told = common.Section("s", "S", clients, beside=beside, warm_ups=1, once=frozenset({"slow"}))
    stage = common.Stage(cast(KafkaCluster, None), cast(Shelf, None), common.Options(rounds=2))
    runs = common.run_section(told, stage)["runs"]
    rounds = ["Consumer", "other", "slow", "Consumer", "other"]
    assert seen == ["open", "Consumer", "other", "slow", *rounds, "closed"]
    assert [(run["client"], run["round"], run["rate"]) for run in runs] == [
        (name, number // 3, 5.0 + number) for number, name in enumerate(rounds)
    ]
