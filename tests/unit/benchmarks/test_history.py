"""The history of accepted figures, its page and its plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import history, store
from benchmarks.common import RESULTS

MACHINE = {"cpus": 2, "cpu": "A", "python": "3.11.7"}
KEY = "consumer/none: rate of Consumer / confluent-kafka"


def measured(at: str, ours: float, **machine: Any) -> dict[str, Any]:
    rates = {"Consumer": [ours, ours * 1.1, ours * 0.9], "confluent-kafka": [1e6] * 3}
    runs = [
        {"client": name, "round": n, "rate": rate}
        for name, all_of in rates.items()
        for n, rate in enumerate(all_of)
    ]
    section = {"at": at, "commit": "0123456", "machine": {**MACHINE, **machine}, "runs": runs}
    return {"consumer/none": section, "of no target": {**section, "runs": []}}


EARLY = history.entries_of(measured("2026-01-31T10:00:00+00:00", 13e6))
LATE = history.entries_of(measured("2026-02-01T10:00:00+00:00", 14e6, cpu="B", python="3.13.5"))


def test_an_entry_has_the_figures_of_its_section_with_their_ranges() -> None:
    (entry,) = EARLY
    assert (entry.section, entry.at, entry.commit) == (
        "consumer/none",
        "2026-01-31T10:00:00+00:00",
        "0123456",
    )
    assert entry.machine == MACHINE
    assert entry.figures[KEY] == (13.0, 11.7, 14.3)


def test_a_history_only_grows_and_has_each_measurement_once(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    assert history.read(file) == []
    grown = history.with_new(LATE, EARLY)
    assert grown == [*EARLY, *LATE]
    assert history.with_new(grown, EARLY) == grown
    history.write(file, grown)
    again = history.read(file)
    assert [entry.at for entry in again] == [entry.at for entry in grown]
    assert history.page(again) == history.page(grown)


def test_the_page_has_dates_machines_and_versions_newest_first() -> None:
    page = history.page([*EARLY, *LATE])
    assert "| A | cpus 2, cpu A |\n| B | cpus 2, cpu B |\n" in page
    rows = [line for line in page.splitlines() if line.startswith("| 2026")]
    assert rows == [
        "| 2026-02-01 10:00 | B | `0123456` | consumer/none | python 3.13.5 |",
        "| 2026-01-31 10:00 | A | `0123456` | consumer/none | python 3.11.7 |",
    ]


def test_a_plot_has_a_point_with_its_range_for_each_measurement_and_the_target() -> None:
    root = ElementTree.fromstring(history.svg([*EARLY, *LATE]))
    svg = "{http://www.w3.org/2000/svg}"
    told = [title.text for circle in root.iter(f"{svg}circle") for title in circle]
    assert "2026-01-31: 13.00 x (11.70 x to 14.30 x)" in told
    assert "2026-02-01: 14.00 x (12.60 x to 15.40 x)" in told
    assert next(title.text for line in root.iter(f"{svg}line") for title in line) == "at least 12.00 x"
    heights = [float(circle.get("cy", "")) for circle in root.iter(f"{svg}circle")]
    assert heights[0] > heights[1]  # the second one is higher


def test_accepted_results_are_in_the_history_and_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PAGES", tmp_path)
    store.show([*EARLY, *LATE])
    assert (tmp_path / "history.md").read_text() == history.page([*EARLY, *LATE])
    assert (tmp_path / "history.svg").read_text() == history.svg([*EARLY, *LATE])


def test_the_committed_history_has_the_baseline_and_its_page_is_made_of_it() -> None:
    entries = history.read(RESULTS / "history.jsonl")
    known = {(entry.section, entry.at): entry.figures for entry in entries}
    for entry in history.entries_of(store.load(store.BASELINE)):
        assert known[entry.section, entry.at].keys() == entry.figures.keys()
    assert (store.PAGES / "history.md").read_text() == history.page(entries)
    assert (store.PAGES / "history.svg").read_text() == history.svg(entries)
