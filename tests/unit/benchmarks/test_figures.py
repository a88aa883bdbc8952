"""What the runs of a section come to, and what counts as having fallen behind the baseline."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import readme, store
from benchmarks.figures import Figure, fallen, figure_of, figures_of
from benchmarks.targets import BEST, TARGETS, Sense, Target


def target(sense: Sense = Sense.AT_LEAST, **changes: Any) -> Target:
    fields = {
        "what": "ours against theirs",
        "section": "s",
        "client": "ours",
        "metric": "rate",
        "sense": sense,
    }
    return Target(**{**fields, "bound": 2.0, "against": "theirs", **changes})


def runs(metric: str = "rate", **clients: list[float]) -> list[dict[str, Any]]:
    return [
        {"client": client, "round": number, metric: value}
        for client, values in clients.items()
        for number, value in enumerate(values)
    ]


def test_a_ratio_is_that_of_the_medians_and_its_range_that_of_the_rounds() -> None:
    found = figure_of(target(), runs(ours=[10.0, 30.0, 20.0], theirs=[10.0, 5.0, 8.0]))
    assert found == Figure(value=20 / 8, low=1.0, high=6.0, runs=3)


def test_without_a_peer_the_figure_is_the_median_itself() -> None:
    alone = target(Sense.AT_MOST, against=None, metric="mb")
    assert figure_of(alone, runs("mb", ours=[3.0, 1.0, 2.0])) == Figure(2.0, 1.0, 3.0, 3)


def test_a_client_may_be_compared_with_the_best_of_its_section() -> None:
    of_best = target(against=BEST)
    measured = runs(ours=[5.0, 5.0], slow=[1.0, 9.0], fast=[10.0, 10.0])
    assert figure_of(of_best, measured) == Figure(0.5, 0.5, 0.5, 2)
    assert figure_of(target(client="fast", against=BEST), measured) == Figure(1.0, 1.0, 1.0, 2)


@pytest.mark.parametrize("measured", [runs(ours=[1.0]), runs(theirs=[1.0]), []])
def test_what_was_measured_on_one_side_only_is_no_figure(measured: list[dict[str, Any]]) -> None:
    assert figure_of(target(), measured) is None


def test_a_section_that_was_not_measured_has_no_figure() -> None:
    asked = target()
    assert figures_of([asked], {}) == {asked: None}


@pytest.mark.parametrize(
    ("sense", "before", "now", "fell"),
    [
        (Sense.AT_LEAST, 10.0, 8.6, False),
        (Sense.AT_LEAST, 10.0, 8.4, True),
        (Sense.AT_LEAST, 10.0, 20.0, False),
        (Sense.AT_MOST, 10.0, 11.4, False),
        (Sense.AT_MOST, 10.0, 11.6, True),
        (Sense.AT_MOST, 10.0, 1.0, False),
        (Sense.REPORTED, 10.0, 11.6, True),
    ],
)
def test_a_figure_has_fallen_when_it_is_worse_by_more_than_its_tolerance(
    sense: Sense, before: float, now: float, fell: bool
) -> None:
    asked = target(sense, tolerance=0.15)
    falls = fallen([asked], {asked.key: before}, {asked.key: now})
    assert [fall.target for fall in falls] == ([asked] if fell else [])


def test_a_fall_is_named_with_both_figures_and_the_tolerance() -> None:
    asked = target(unit="%", tolerance=0.1)
    (fall,) = fallen([asked], {asked.key: 0.9}, {asked.key: 0.5})
    assert str(fall) == "ours against theirs: 90 % in the baseline, 50 % now (tolerance 10%)"


def test_a_figure_that_still_reaches_its_target_has_fallen_all_the_same() -> None:
    asked = target(bound=2.0)
    assert fallen([asked], {asked.key: 10.0}, {asked.key: 5.0})


def test_what_the_baseline_or_the_latest_runs_lack_is_passed_over() -> None:
    asked = target()
    assert fallen([asked], {asked.key: 10.0}, {}) == []
    assert fallen([asked], {}, {asked.key: 1.0}) == []


@pytest.mark.parametrize(
    ("sense", "figure", "reached"),
    [
        (Sense.AT_LEAST, 2.0, True),
        (Sense.AT_LEAST, 1.9, False),
        (Sense.AT_MOST, 2.0, True),
        (Sense.AT_MOST, 2.1, False),
        (Sense.REPORTED, 9.0, None),
    ],
)
def test_reached_means_on_the_right_side_of_the_bound(
    sense: Sense, figure: float, reached: bool | None
) -> None:
    assert target(sense).reached(figure) is reached


def test_the_readmes_table_has_what_was_measured_and_says_what_was_not_reached() -> None:
    by_name = {target.what: target for target in TARGETS}
    fast = by_name["Consumer against confluent-kafka, plain"]
    late = by_name["latency p99: Consumer against confluent-kafka"]
    made = readme.table(TARGETS, {fast: Figure(12.5, 12, 13, 5), late: Figure(1.5, 1, 2, 5)})
    assert made.splitlines()[2:] == [
        f"| {fast.what} | 12.50 x | 12.00 x |",
        f"| {late.what} | 1.50 x, **not reached** | at most 1.20 x |",
    ]
    text = f"before\n{readme.BEGIN}old\n{readme.END}after\n"
    assert readme.with_table(text, made) == f"before\n{readme.BEGIN}\n{made}\n{readme.END}after\n"
    with pytest.raises(ValueError, match="figures"):
        readme.with_table("a README without the comments", made)


def test_the_table_of_the_readme_is_that_of_the_baseline() -> None:
    made = readme.table(TARGETS, figures_of(TARGETS, store.load(store.BASELINE)))
    assert made in store.README.read_text()
