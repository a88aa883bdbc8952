"""The table of figures in the README, written anew from the baseline whenever that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure
from benchmarks.targets import Sense, Target

HEADLINES = (
    "Consumer against confluent-kafka, plain",
    "Consumer against confluent-kafka, lz4",
    "Consumer against confluent-kafka, zstd",
    "Consumer against Java's ConsumerPerformance, plain",
    "Consumer against Java's ConsumerPerformance, zstd",
    "Consumer against the floor, plain",
    "Consumer against the floor, 1 KB records",
    "Consumer against the floor, 50 KB records",
    "16 KiB batches against large ones, plain",
    "message at a time against confluent-kafka",
    "Job, 2 workers, against 2 confluent-kafka, plain",
    "Job, 2 workers, against 2 confluent-kafka, zstd",
    "Job, 1 worker, against Consumer, plain",
    "Job, 1 worker, against Consumer, zstd",
    "the same bytes in 64 partitions against the best",
    "the same bytes in 512 partitions against the best",
    "latency p99: Consumer against confluent-kafka",
    "latency p99: Job against confluent-kafka",
    "idle: busiest process of a Job",
    "memory over the imports: Consumer",
    "memory over the imports / limits: Job",
    "start of a Job, 4 workers",
    "Producer, Arrow, against confluent-kafka, plain",
    "Spark, batch, against its own source, plain",
    "Spark, batch, against its own source, zstd",
    "Spark, a fused JSON stage, against mapInArrow",
    "Spark, a fused JSON stage, against from_json",
    "Spark, stream, against its own source",
    "Spark, sink, against its own sink",
    "Job, 2 workers, against ray.data.read_kafka",
)
"""Targets by `what`, for people who want to know whether to read on; all of them are in the report."""
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"


def table(targets: Sequence[Target], figures: Mapping[Target, Figure | None]) -> str:
    """Markdown. Leaves out what was not measured."""
    by_name = {target.what: target for target in targets}
    rows = ["| | measured | target |", "|---|---|---|"]
    for name in HEADLINES:
        target = by_name[name]
        figure = figures.get(target)
        if figure is not None:
            missed = "" if target.reached(figure.value) else ", **not reached**"
            sense = "at most " if target.sense is Sense.AT_MOST else ""
            rows.append(
                f"| {name} | {target.text(figure.value)}{missed} | {sense}{target.text(target.bound)} |"
            )
    return "\n".join(rows) + "\n"


def with_table(readme: str, made: str) -> str:
    """The README with another table between its two comments. Raises `ValueError` where they are not there once each."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(
            f"the README needs {BEGIN.strip()} and {END.strip()} once each, around the table of figures"
        )
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}"
