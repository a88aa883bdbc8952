"""The results as one Markdown document: the targets first, then what they are made of."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Runs, figures_of
from benchmarks.targets import TARGETS, Sense, Target

UNITS = {
    "rate": ("million records/s", 1e-6),
    "start_up": ("start-up s", 1),
    "cores": ("CPU cores, client", 1),
    "broker_cores": ("CPU cores, broker", 1),
    "rss_mb": ("RSS MB", 1),
    "p50_ms": ("p50 ms", 1),
    "p99_ms": ("p99 ms", 1),
    "p999_ms": ("p99.9 ms", 1),
    "max_ms": ("max ms", 1),
    "cpu_ms": ("CPU of a record, ms", 1),
    "busiest_percent": ("busiest process, % of a core", 1),
    "peak_mb": ("peak MB", 1),
    "imports_mb": ("imports MB", 1),
    "over_imports_mb": ("over the imports MB", 1),
    "shared_mb": ("of it shared MB", 1),
    "limits_mb": ("limits MB", 1),
    "first_record_s": ("first record after s", 1),
    "without_s": ("without results s", 1),
    "noticed_s": ("noticed after s", 1),
}
"""Metric → heading and factor, in the order of the columns."""


def markdown(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Targets, then a table of each section with medians and ranges."""
    lines = ["# Benchmarks", "", *about(sections), "", *targets_table(sections)]
    for name, section in sections.items():
        notes = f"{section['notes']}. " if section["notes"] else ""
        lines += ["", f"## {name}", "", f"{section['title']}. {notes}{conditions(section)}", ""]
        lines += section_table(section["runs"])
    return "\n".join(lines) + "\n"


def about(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The machine and the versions; more than one line where sections were measured on different ones."""
    facts = dict.fromkeys(", ".join(f"{k} {v}" for k, v in s["machine"].items()) for s in sections.values())
    return [f"Broker and clients on one machine: {fact}." for fact in facts]


def conditions(section: Mapping[str, Any]) -> str:
    options = section["options"]
    quick = "**A smoke run with little data: these are no figures.** " if options["quick"] else ""
    stored = ", ".join(f"{topic} {mb:,.0f} MB" for topic, mb in section["stored_mb"].items() if mb)
    return (
        f"{quick}Medians of {options['rounds']} alternating runs of at least {options['seconds']:g} s, "
        f"ranges in brackets; commit {section['commit']}, {section['at']}.{f' On disk: {stored}.' if stored else ''}"
    )


def targets_table(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| what | target | measured | rounds | reached | what bounds it |", "|---|---|---|---|---|---|"]
    for target, figure in figures_of(TARGETS, sections).items():
        if figure is None:
            continue
        text = target.text
        bound = target.sense if target.sense is Sense.REPORTED else f"{target.sense} {text(target.bound)}"
        reached = {True: "yes", False: "**no**", None: ""}[target.reached(figure.value)]
        measured = f"{text(figure.value)} ({text(figure.low)} to {text(figure.high)})"
        why = (target.bounded_by or cores_of(target, sections)) if reached == "**no**" else ""
        lines.append(f"| {target.what} | {bound} | {measured} | {figure.runs} | {reached} | {why} |")
    return lines


def cores_of(target: Target, sections: Mapping[str, Mapping[str, Any]]) -> str:
    """What is known without a profile: how busy the client and the broker were."""
    runs = [with_cores(run) for run in sections[target.section]["runs"] if run["client"] == target.client]
    if not all({"cores", "broker_cores"} <= run.keys() for run in runs):
        return ""
    client, broker = (statistics.median(run[name] for run in runs) for name in ("cores", "broker_cores"))
    return f"not profiled; cores busy: client {client:.2f}, broker {broker:.2f}"


def section_table(runs: Runs) -> list[str]:
    rows: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        row = rows.setdefault(run["client"], {})
        for metric, value in with_cores(run).items():
            if metric in UNITS:
                row.setdefault(metric, []).append(value * UNITS[metric][1])
    columns = [metric for metric in UNITS if any(metric in row for row in rows.values())]
    headings = ["client", "runs", *(UNITS[metric][0] for metric in columns)]
    counts = Counter(run["client"] for run in runs)
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for client, row in rows.items():
        cells = [spread(row[metric]) if metric in row else "" for metric in columns]
        lines.append(f"| {client} | {counts[client]} | {' | '.join(cells)} |")
    return lines


def with_cores(run: Mapping[str, Any]) -> dict[str, Any]:
    """CPU as cores where it is told in seconds: those by the seconds of the run."""
    found = dict(run)
    for metric, name in (("cpu", "cores"), ("broker_cpu", "broker_cores")):
        if metric in run:
            found[name] = run[metric] / run["seconds"]
    return found


def spread(values: Sequence[float]) -> str:
    """The median and the range."""
    middle = f"{statistics.median(values):.3g}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.3g}-{max(values):.3g})"
