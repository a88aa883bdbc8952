"""`kafka-actors dead-letters`: lists the records of a dead-letter topic, and puts them back where they came from."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from kafka_actors.config import build
from kafka_actors.errors import UndeliveredError, UsageError
from kafka_actors.options import ClientConfig
from kafka_actors.sinks.dead_letters import PREFIX, own_headers
from kafka_actors.types import TopicPartition

from .command import EXIT_DONE, EXIT_FAILED, IntRange, terminable
from .connection import client_command
from .consume import Extent, StartOffset, batches, begin
from .output import Output, note, slow_notice
from .results import columns, form_option, show

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_actors.consumer import Consumer
    from kafka_actors.producer import Producer

    from .option_sources import OptionValues

__all__ = ["dead_letters"]

FIELDS = ("topic", "partition", "offset", "group", "stage", "reason")
"""Names that `--filter` takes: what the headers of a dead letter say."""


class DeadLetter(NamedTuple):
    """One record of a dead-letter topic: `at` is its own place, the other fields are those of its headers, None for one that lacks them."""

    at: str
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    group: str | None
    stage: str | None
    reason: str | None


Filters = Mapping[str, str]


@click.group("dead-letters")
def dead_letters() -> None:
    """Records of a dead-letter topic: list, replay."""


def dead_letter_command(function: Callable[..., int]) -> Callable[..., None]:
    """Makes a function `(output, options, found, form, **more) -> exit code` the body of a command over the dead letters that a filter
    leaves. `found`: its records, as far as the topic goes now, with what the headers of each say."""

    @functools.wraps(function)
    def body(
        output: Output, settings: OptionValues, topic: str, filters: tuple[str, ...], form: str, **more: Any
    ) -> int:
        wanted = dict(_filter(text) for text in filters)
        with settings.named():
            options = msgspec.structs.asdict(build(ClientConfig, settings.options))
        from kafka_actors.consumer import Consumer

        # Those of a job that delivers exactly once are in transactions, some of which were aborted.
        with terminable(), closing(Consumer(config=options, isolation_level="read_committed")) as consumer:
            waits = f"waiting for an answer of {', '.join(options['bootstrap_servers'])}"
            with slow_notice(note, waits):
                begin(consumer, {topic: None}, StartOffset("beginning"), True, extent := Extent())
            return function(output, options, _dead_letters(consumer, extent, wanted), form, **more)

    with_filter = click.option(
        "--filter",
        "filters",
        metavar="NAME=VALUE",
        multiple=True,
        help=f"Only those whose {', '.join(FIELDS[:-1])} is VALUE, or whose reason matches the regular expression VALUE; may be repeated.",
    )
    with_form = form_option("Columns, or a document with all fields.")
    return click.argument("topic")(with_filter(with_form(client_command(ClientConfig)(body))))


def _filter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name not in FIELDS:
        raise UsageError(f"--filter {text!r}: give NAME=VALUE, with NAME one of {', '.join(FIELDS)}")
    if name == "reason":
        try:
            re.compile(value)
        except re.error as error:
            raise UsageError(f"--filter {text!r}: is no regular expression: {error}") from None
    return name, value


def _dead_letters(
    consumer: Consumer, extent: Extent, filters: Filters
) -> Iterator[tuple[pa.RecordBatch, list[DeadLetter]]]:
    """Yields batches of the records that the filter leaves, of the extent."""
    for batch in batches(consumer, extent):
        places = batch.select(["topic", "partition", "offset", "headers"])
        told = [_told(row) for row in places.to_pylist()]
        rows = [row for row, letter in enumerate(told) if _passes(letter, filters)]
        if rows:
            yield batch.take(rows), [told[row] for row in rows]


def _told(row: dict[str, Any]) -> DeadLetter:
    """Reads what the headers of a record say: of several with one name the last, which is the one that was written here."""
    said = {h["key"]: h["value"] for h in row["headers"] or () if h["key"].startswith(PREFIX)}

    def text(name: str) -> str | None:
        value = said.get(PREFIX + name)
        return None if value is None else value.decode(errors="replace")

    def number(name: str) -> int | None:
        value = text(name)
        return int(value) if value is not None and re.fullmatch(r"-?\d{1,18}", value) else None

    return DeadLetter(
        f"{row['topic']}-{row['partition']}@{row['offset']}",
        text("topic"),
        number("partition"),
        number("offset"),
        number("timestamp"),
        text("group"),
        text("stage"),
        text("reason"),
    )


def _passes(letter: DeadLetter, filters: Filters) -> bool:
    for name, wanted in filters.items():
        found = getattr(letter, name)
        if found is None:
            return False
        if re.search(wanted, found) is None if name == "reason" else str(found) != wanted:
            return False
    return True


# ------------------------------------------------------------ list


@dead_letters.command("list")
@click.option("-c", "--count", type=IntRange(min=1), help="Stop after so many.")
@dead_letter_command
def list_dead_letters(
    output: Output,
    options: dict[str, Any],
    found: Iterator[tuple[Any, list[DeadLetter]]],
    form: str,
    count: int | None,
) -> int:
    """List the records of a dead-letter TOPIC: where each came from, which stage failed, and why."""
    listed: list[DeadLetter] = []
    for _, told in found:
        listed += told
        if count is not None and len(listed) >= count:
            del listed[count:]
            break
    rows = [(one.at, _source(one), one.group, one.stage, one.reason) for one in listed]
    show(output, form, columns(("RECORD", "SOURCE", "GROUP", "STAGE", "REASON"), rows), listed)
    return EXIT_DONE


def _source(letter: DeadLetter) -> str | None:
    return None if letter.topic is None else f"{letter.topic}-{letter.partition}@{letter.offset}"


# ------------------------------------------------------------ replay


@dead_letters.command()
@click.option("--execute", is_flag=True, help="Send them. Otherwise it is only said what would be sent.")
@dead_letter_command
def replay(
    output: Output,
    options: dict[str, Any],
    found: Iterator[tuple[Any, list[DeadLetter]]],
    form: str,
    execute: bool,
) -> int:
    """Put records of a dead-letter TOPIC back into the partitions that they came from, with their own headers.

    Without --execute nothing is sent. What is put back stays in the dead-letter topic: another replay would send it again.
    """
    sent: Counter[TopicPartition] = Counter()
    homeless: list[str] = []
    try:
        with _producer(options) if execute else nullcontext() as producer:
            for batch, told in found:
                homeless += [letter.at for letter in told if _target(letter) is None]
                _put_back(producer, batch, told, sent)
    except BaseException:
        for tp, number in sorted(sent.items()) if execute else ():
            note(f"put back into {tp.topic}-{tp.partition} before that: {number}")
        raise
    title = "SENT" if execute else "WOULD BE SENT"
    rows = [(tp.topic, tp.partition, number) for tp, number in sorted(sent.items())]
    document = [
        {"topic": topic, "partition": partition, "records": n, "sent": execute}
        for topic, partition, n in rows
    ]
    show(output, form, columns(("TOPIC", "PARTITION", title), rows), document)
    for place in homeless:
        note(f"{place}: its headers don't say where it came from; it is left out")
    return EXIT_FAILED if homeless else EXIT_DONE


def _producer(options: dict[str, Any]) -> AbstractContextManager[Producer]:
    from kafka_actors.sinks.kafka import CopyingProducer

    return closing(CopyingProducer(config=options))


def _target(letter: DeadLetter) -> TopicPartition | None:
    if letter.topic is None or letter.partition is None:
        return None
    return TopicPartition(letter.topic, letter.partition)


def _put_back(
    producer: Producer | None,
    batch: pa.RecordBatch,
    told: Sequence[DeadLetter],
    sent: Counter[TopicPartition],
) -> None:
    """Sends records to their topics, and counts those that the brokers have acknowledged; without a producer those that would be
    sent. Raises what keeps one from being sent."""
    rows_of: dict[str, list[int]] = {}
    for row, letter in enumerate(told):
        if (target := _target(letter)) is not None:
            rows_of.setdefault(target.topic, []).append(row)
    for topic, rows in rows_of.items():
        letters = [told[row] for row in rows]
        lost = frozenset(range(len(rows)))
        try:
            if producer is not None:
                producer.send_batch(_as_it_was(batch.take(rows), letters), topic).result()
            lost = frozenset()
        except UndeliveredError as error:
            lost = lost if error.rows is None else frozenset(error.rows)
            raise
        finally:
            sent.update(
                TopicPartition(topic, letter.partition)
                for row, letter in enumerate(letters)
                if row not in lost and letter.partition is not None
            )


def _as_it_was(batch: pa.RecordBatch, told: Sequence[DeadLetter]) -> pa.RecordBatch:
    """Returns the records with the partitions that they came from, and the headers that they had there."""
    import pyarrow as pa

    headers = [own_headers(found) for found in batch["headers"].to_pylist()]
    return pa.record_batch(
        {
            "key": batch["key"],
            "value": batch["value"],
            "headers": pa.array(headers, batch.schema.field("headers").type),
            "partition": pa.array([letter.partition for letter in told], pa.int32()),
        }
    )
