"""The chart of the README: records a second of each client as bars. Plain SVG that follows the reader's light or dark mode."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from html import escape
from typing import Any

from benchmarks.common import OURS
from benchmarks.consumer import AIOKAFKA, FLOOR
from benchmarks.figures import values_of
from benchmarks.job import TWO_WORKERS
from benchmarks.peers import CONFLUENT, JAVA

WIDTH, LABEL, VALUE = 760, 210, 60
BAR, GAP, HEADING = 20, 6, 34
GROUPS = {
    "100-byte records, uncompressed": ("consumer/none", "job/none"),
    "100-byte records, zstd": ("consumer/zstd", "job/zstd"),
}
"""Heading → the section of the in-process clients, and that of jobs."""
NAMES = {
    OURS: "kafka-actors Consumer",
    TWO_WORKERS: "kafka-actors Job, 2 workers",
    JAVA: "Java ConsumerPerformance",
    CONFLUENT: "confluent-kafka",
    AIOKAFKA: "aiokafka",
    FLOOR: "the wire: bytes dropped",
}
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .heading { font-weight: 600; }
  .ours { fill: #0969da; } .other { fill: #8c959f; } .floor { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .ours { fill: #4493f8; } .other { fill: #6e7681; } .floor { stroke: #6e7681; }
  }
"""


def bars_of(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Heading → client → median of million records a second, of what was measured."""
    found: dict[str, dict[str, float]] = {}
    for heading, (clients, jobs) in GROUPS.items():
        bars = {}
        for client in NAMES:
            section = sections.get(jobs if client == TWO_WORKERS else clients)
            rates = values_of(section["runs"], client, "rate") if section else {}
            if rates:
                bars[client] = statistics.median(rates.values()) / 1e6
        if bars:
            found[heading] = bars
    return found


def svg(groups: Mapping[str, Mapping[str, float]]) -> str:
    """A group of bars under each heading, all on one scale."""
    longest = max((rate for bars in groups.values() for rate in bars.values()), default=1.0)
    scale = (WIDTH - LABEL - VALUE) / longest
    body: list[str] = []
    y = 0
    for heading, bars in groups.items():
        y += HEADING
        body.append(f'<text class="heading" x="0" y="{y - 12}">{escape(heading)}, million records/s</text>')
        for client, rate in bars.items():
            kind = "ours" if client in (OURS, TWO_WORKERS) else "floor" if client == FLOOR else "other"
            middle = y + BAR * 0.7
            length = max(rate * scale, 1)
            body += [
                f'<text x="{LABEL - 10}" y="{middle:.0f}" text-anchor="end">{escape(NAMES[client])}</text>',
                f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>',
                f'<text x="{LABEL + length + 8:.0f}" y="{middle:.0f}">{rate:.1f}</text>',
            ]
            y += BAR + GAP
    words = "; ".join(
        f"{heading}: {', '.join(f'{NAMES[c]} {rate:.1f}' for c, rate in bars.items())}"
        for heading, bars in groups.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" '
        f'height="{y + 4}" role="img" aria-label="{escape(words)}">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )
