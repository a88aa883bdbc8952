"""`kafka-actors spark-checkpoint`: shows and converts the offsets in the checkpoint of a streaming query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.base.paths import wrong_path
from kafka_actors.errors import ConfigError

from .command import EXIT_DONE, command
from .output import Output
from .results import columns, form_option, show

if TYPE_CHECKING:
    from kafka_actors.spark.source.checkpoint import OffsetLogBatch, QueryCheckpoint

__all__ = ["spark_checkpoint"]

_TITLES = ("BATCH", "STATE", "SOURCE", "FORM", "TOPIC", "PARTITION", "OFFSET", "TOPIC-ID", "SCHEMA")

_state_location = click.option(
    "--state-location",
    metavar="PATH",
    help="The stateLocation of the query's Kafka source, if that isn't sources/<number> in the checkpoint.",
)


@click.group("spark-checkpoint")
def spark_checkpoint() -> None:
    """Show or convert Kafka offsets in the checkpoint of a Spark query, of this source or of Spark's own."""


@spark_checkpoint.command("show")
@click.argument("path")
@_state_location
@form_option("Columns, or a document.")
@command
def show_checkpoint(output: Output, path: str, state_location: str | None, form: str) -> int:
    """Show where the last finished batch ended, and which batch is planned after it.

    FORM is that of the offsets: kafka-actors with topic ids, or spark, which Spark's own source reads. SCHEMA is the id of the schema by
    which values are decoded.
    """
    from kafka_actors.spark.source.checkpoint import described

    checkpoint = _opened(path, state_location)
    rows = [row for batch in described(checkpoint.batches()) for row in _rows(checkpoint, batch)]
    names = [title.lower().replace("-", "_") for title in _TITLES]
    document = [dict(zip(names, row, strict=True)) for row in rows]
    show(output, form, columns(_TITLES, rows), document)
    return EXIT_DONE


@spark_checkpoint.command("convert")
@click.argument("path")
@click.option(
    "--to",
    "form",
    type=click.Choice(["spark", "kafka-actors"]),
    required=True,
    help="For which source: Spark's own (kafka), or this one (kafka_actors).",
)
@_state_location
@command
def convert_checkpoint(output: Output, path: str, form: Any, state_location: str | None) -> int:
    """Change the offsets of a stopped query for the other source.

    To spark: topic ids and the first start, which Spark's form can't hold, go to sources/<number> in the checkpoint.
    To kafka-actors: they are read from there. The query must not be running. Safe to repeat.
    """
    changed = _opened(path, state_location).convert(form)
    batches = f"the offsets of {len(changed)} batch{'es' * (len(changed) != 1)}"
    output.print(f"{path}: changed {batches} to {form}" if changed else f"{path}: nothing to change")
    return EXIT_DONE


def _opened(path: str, state_location: str | None) -> QueryCheckpoint:
    from kafka_actors.spark.source.checkpoint import QueryCheckpoint

    full = [_full_path(name, text) for name, text in (("PATH", path), ("--state-location", state_location))]
    assert full[0] is not None
    return QueryCheckpoint(full[0], full[1])


def _full_path(name: str, path: str | None) -> str | None:
    if path is None:
        return None
    if wrong := wrong_path(path):
        raise ConfigError(name, wrong)
    return path if "://" in path else str(Path(path).absolute())


def _rows(checkpoint: QueryCheckpoint, batch: OffsetLogBatch) -> list[tuple[Any, ...]]:
    state = "finished" if batch.finished else "planned"
    found: list[tuple[Any, ...]] = []
    for each in batch.kafka:
        offsets = checkpoint.restored(each)
        schema = None if offsets.schema is None else offsets.schema.id
        for tp, offset in sorted(offsets.by_partition.items()):
            topic_id = offsets.topic_ids.get(tp.topic)
            known = None if topic_id is None else topic_id.hex()
            found.append((batch.number, state, each.source, each.form, *tp, offset, known, schema))
    return found
