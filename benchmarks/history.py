"""The figures of each accepted measurement, with date and machine: one line a section in `results/history.jsonl`, which only grows.

From it are made the plots and the table of `docs/benchmarks/history.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chart import STYLE
from benchmarks.figures import figures_of
from benchmarks.readme import HEADLINES
from benchmarks.targets import TARGETS, Sense, Target

MACHINE = ("cpus", "cpu", "memory GB", "linux")
"""Facts that make a machine; the others are versions of what ran on it."""
WIDTH, PANEL, HEIGHT, GAP, LEFT = 760, 370, 74, 58, 6
BY_NAME = {target.what: target for target in TARGETS}
STYLES = f"""{STYLE}
  .small {{ font-size: 11px; }} .line {{ fill: none; stroke: #0969da; stroke-width: 1.5; }}
  .range {{ stroke: #0969da; stroke-opacity: .45; stroke-width: 3; }}
  .bound {{ stroke: #8c959f; stroke-dasharray: 4 3; }} .axis {{ stroke: #d1d9e0; }}
"""


class Entry(NamedTuple):
    """One section as it was measured. `figures`: `Target.key` → value, lowest and highest of the rounds."""

    section: str
    at: str
    commit: str
    machine: dict[str, Any]
    figures: dict[str, tuple[float, float, float]]


def entries_of(sections: Mapping[str, Mapping[str, Any]]) -> list[Entry]:
    """Entries of the sections that have a target, by the time at which they were measured."""
    found = []
    for name, section in sections.items():
        figures = {
            target.key: (round(f.value, 6), round(f.low, 6), round(f.high, 6))
            for target, f in figures_of([t for t in TARGETS if t.section == name], sections).items()
            if f is not None
        }
        if figures:
            found.append(Entry(name, section["at"], section["commit"], dict(section["machine"]), figures))
    return sorted(found, key=lambda entry: (entry.at, entry.section))


def read(file: Path) -> list[Entry]:
    """Entries of a history; none where there is no file yet."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Entry(**json.loads(line)) for line in lines]


def with_new(history: Sequence[Entry], measured: Iterable[Entry]) -> list[Entry]:
    """The history with the entries that it doesn't have yet; a section measured at one moment is one entry."""
    known = {(entry.section, entry.at) for entry in history}
    new = [entry for entry in measured if (entry.section, entry.at) not in known]
    return sorted([*history, *new], key=lambda entry: (entry.at, entry.section))


def write(file: Path, history: Iterable[Entry]) -> None:
    text = "".join(json.dumps(entry._asdict()) + "\n" for entry in history)
    file.write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- as a page


def page(history: Sequence[Entry]) -> str:
    """Markdown: the plots, which machines, and which section was measured when, where, and at which commit."""
    machines = machines_of(history)
    lines = [
        "# History of the benchmarks",
        "",
        "Made from `benchmarks/results/history.jsonl` whenever a measurement becomes the baseline. [Method](method.md) says how it is",
        "measured; all figures of the present baseline are in `benchmarks/results/baseline.md`.",
        "",
        "![Plots of each headline figure over the measurements so far, with its range over the rounds and its target](history.svg)",
        "",
        "A point is the median of the rounds of one measurement, the bar its range, the dashed line the target. Points stand in the",
        "order of the measurements; the distance between them says nothing.",
        "",
        "## Machines",
        "",
        "| | machine |",
        "|---|---|",
        *(f"| {letter} | {text} |" for text, letter in machines.items()),
        "",
        "## Measurements",
        "",
        "| when (UTC) | machine | commit | sections | versions |",
        "|---|---|---|---|---|",
        *_measurements(history, machines),
    ]
    return "\n".join(lines) + "\n"


def machines_of(history: Iterable[Entry]) -> dict[str, str]:
    """Machine in words → its letter, in the order in which they came."""
    texts = dict.fromkeys(_machine(entry) for entry in history)
    return {text: chr(ord("A") + number) for number, text in enumerate(texts)}


def _machine(entry: Entry) -> str:
    return ", ".join(f"{name} {entry.machine[name]}" for name in MACHINE if name in entry.machine)


def _measurements(history: Iterable[Entry], machines: Mapping[str, str]) -> list[str]:
    """A row for each machine, commit and versions, newest first, with the time of its first section."""
    rows: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in history:
        versions = ", ".join(f"{k} {v}" for k, v in entry.machine.items() if k not in MACHINE)
        rows.setdefault((machines[_machine(entry)], entry.commit, versions), []).append(entry)
    return [
        f"| {found[0].at[:16].replace('T', ' ')} | {machine} | `{commit}` | {', '.join(e.section for e in found)} | {versions} |"
        for (machine, commit, versions), found in sorted(
            rows.items(), key=lambda row: row[1][0].at, reverse=True
        )
    ]


# ---------------------------------------------------------------- as plots


def svg(history: Sequence[Entry]) -> str:
    """A small plot of each headline figure that was measured, two in a row."""
    panels = [(target, points) for name in HEADLINES if (points := _points(target := BY_NAME[name], history))]
    body = [
        _panel(target, points, LEFT + number % 2 * (WIDTH // 2), number // 2 * (HEIGHT + GAP) + 16)
        for number, (target, points) in enumerate(panels)
    ]
    height = (len(panels) + 1) // 2 * (HEIGHT + GAP) + 8
    words = "; ".join(f"{t.what}: {', '.join(t.text(p[0]) for _, p in points)}" for t, points in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title desc">\n<title id="title">Benchmarks over time</title>\n'
        f'<desc id="desc">The medians of the measurements, oldest first. {escape(words)}.</desc>\n'
        f"<style>{STYLES}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _points(target: Target, history: Iterable[Entry]) -> list[tuple[str, tuple[float, float, float]]]:
    """The day and the figure of each measurement."""
    return [(e.at[:10], e.figures[target.key]) for e in history if target.key in e.figures]


def _panel(
    target: Target, points: Sequence[tuple[str, tuple[float, float, float]]], left: int, top: int
) -> str:
    bound = None if target.sense is Sense.REPORTED else target.bound
    most = max([high for _, (_, _, high) in points] + ([bound] if bound is not None else [])) * 1.08
    width = PANEL - 30

    def y(value: float) -> float:
        return top + 8 + HEIGHT * (1 - value / most)

    def x(number: int) -> float:
        return left + (width * (number + 0.5) / len(points))

    last = target.text(points[-1][1][0])
    parts = [
        f'<text class="heading small" x="{left}" y="{top}">{escape(target.what)}</text>',
        f'<line class="axis" x1="{left}" x2="{left + width}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>',
    ]
    if bound is not None:
        sense = f"{target.sense} {target.text(bound)}"
        parts += [
            f'<line class="bound" x1="{left}" x2="{left + width}" y1="{y(bound):.1f}" y2="{y(bound):.1f}">'
            f"<title>{escape(sense)}</title></line>"
        ]
    for number, (day, (value, low, high)) in enumerate(points):
        told = f"{day}: {target.text(value)} ({target.text(low)} to {target.text(high)})"
        parts += [
            f'<line class="range" x1="{x(number):.1f}" x2="{x(number):.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}"/>',
            f'<circle class="ours" cx="{x(number):.1f}" cy="{y(value):.1f}" r="3"><title>{escape(told)}</title></circle>',
        ]
    path = " ".join(f"{x(number):.1f},{y(value):.1f}" for number, (_, (value, _, _)) in enumerate(points))
    first, newest = points[0][0], points[-1][0]
    days = first if first == newest else f"{first} to {newest}"
    told = (
        f"{days}: {last}" if bound is None else f"{days}: {last}, target {target.sense} {target.text(bound)}"
    )
    parts += [
        f'<polyline class="line" points="{path}"/>',
        f'<text class="small" x="{left}" y="{y(0) + 14:.1f}">{escape(told)}</text>',
    ]
    return "\n".join(parts)
