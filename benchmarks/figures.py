"""From runs to figures, and from figures to what fell: pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.targets import BEST, Target

Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A median, or a ratio of two; `low` and `high` are the range over the rounds, `runs` their number."""

    value: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True)
class Fall:
    """A figure that is worse than the baseline by more than the tolerance of its target."""

    target: Target
    before: float
    now: float

    def __str__(self) -> str:
        target = self.target
        return (
            f"{target.what}: {target.text(self.before)} in the baseline, {target.text(self.now)} now "
            f"(tolerance {target.tolerance:.0%})"
        )


def values_of(runs: Runs, client: str, metric: str) -> dict[int, float]:
    """Round → the metric."""
    return {run["round"]: float(run[metric]) for run in runs if run["client"] == client and metric in run}


def figure_of(target: Target, runs: Runs) -> Figure | None:
    """What a section's runs say of a target; None where one of the two sides was not measured."""
    own = values_of(runs, target.client, target.metric)
    if not own:
        return None
    if target.against is None:
        return Figure(statistics.median(own.values()), min(own.values()), max(own.values()), len(own))
    other = values_of(runs, _against(target, runs), target.metric)
    both = [own[number] / other[number] for number in own if number in other]
    if not both:
        return None
    value = statistics.median(own.values()) / statistics.median(other.values())
    return Figure(value, min(both), max(both), len(both))


def _against(target: Target, runs: Runs) -> str:
    if target.against != BEST:
        return target.against or ""
    clients: dict[str, None] = dict.fromkeys(run["client"] for run in runs)
    return max(clients, key=lambda name: statistics.median(values_of(runs, name, target.metric).values()))


def figures_of(
    targets: Iterable[Target], sections: Mapping[str, Mapping[str, Any]]
) -> dict[Target, Figure | None]:
    """Each target's figure; None where it was not measured."""
    return {t: figure_of(t, sections[t.section]["runs"]) if t.section in sections else None for t in targets}


def fallen(targets: Iterable[Target], baseline: Mapping[str, float], now: Mapping[str, float]) -> list[Fall]:
    """What is worse than the baseline by more than its tolerance. Both map `Target.key` to the figure; what only one
    of them has is passed over."""
    falls = []
    for target in targets:
        before, value = baseline.get(target.key), now.get(target.key)
        if before is None or value is None:
            continue
        if target.larger_is_better:
            fell = value < before * (1 - target.tolerance)
        else:
            fell = value > before * (1 + target.tolerance)
        if fell:
            falls.append(Fall(target, before, value))
    return falls
