"""`kafka-actors consume`: writes records as text with kcat's format strings, as JSON lines, as Arrow or as Parquet."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
import msgspec

from kafka_actors.config import build
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.options import ConsumerConfig
from kafka_actors.types import TopicPartition

from .command import EXIT_DONE, IntRange, terminable
from .connection import client_command
from .output import Output, note, slow_notice
from .record_files import STDIO, Render, Write, check_reader, record_writer
from .results import RECORD_FORMS
from .scopes import existing_partitions, milliseconds, topic_scope, topics_option

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kafka_actors.consumer import Consumer

    from .option_sources import OptionValues

__all__ = [
    "Extent",
    "StartOffset",
    "batches",
    "begin",
    "consume",
    "copy",
    "options_of",
    "start_offset",
    "starts_of",
]

POLL_MS = 200
"""Longest wait for records before it is looked whether everything was read."""


@click.command()
@topics_option()
@click.option(
    "-g", "--group", "group_id", metavar="GROUP", help="Read as a member of this group, and commit."
)
@click.option(
    "--offset",
    metavar="OFFSET",
    help="Where to begin: beginning, end, an offset, or -N for the last N of each partition; with --group only beginning or end, "
    "for partitions without a commit.  [default: beginning]",
)
@click.option(
    "--from-time",
    metavar="TIME",
    help="Begin at the first record at or after a time: YYYY-MM-DDTHH:mm:SS.sss, or milliseconds since 1970.",
)
@click.option("-e", "--to-end", is_flag=True, help="Stop at the ends that the partitions have at the start.")
@click.option(
    "--until",
    metavar="TIME",
    help="Stop before the first record at or after a time, which isn't in the future; or at the end.",
)
@click.option("-c", "--count", type=IntRange(min=1), help="Stop after so many records.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(RECORD_FORMS),
    default="text",
    show_default=True,
    help="Text by --format, JSON lines, an Arrow IPC stream, or Parquet.",
)
@click.option(
    "-f",
    "--format",
    "template",
    metavar="FORMAT",
    help=r"Text of a record, with kcat's tokens: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, "
    r"%K and %S lengths of key and value, %R that as four bytes, %% a percent sign; \n, \t, \xHH.  [default: %s\n]",
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print keys, too, with this behind them.")
@click.option("-Z", "--null", "show_null", is_flag=True, help="Print keys and values that are null as NULL.")
@click.argument("file", metavar="[FILE]", default=STDIO)
@client_command(ConsumerConfig, "group_id")
def consume(
    output: Output,
    settings: OptionValues,
    topics: tuple[str, ...],
    offset: str | None,
    from_time: str | None,
    to_end: bool,
    until: str | None,
    count: int | None,
    form: str,
    template: str | None,
    key_delimiter: str | None,
    show_null: bool,
    file: str,
) -> int:
    """Print the records of topics, or write them to FILE; without end, unless an option says so.

    Without --group nothing is committed, and no group is joined.
    """
    scope = topic_scope(topics)
    if not scope:
        raise UsageError("--topic: name a topic to read")
    start = start_offset(offset, from_time)
    stop = _stop(to_end, until)
    render = _renderer(form, template, key_delimiter, show_null)
    from kafka_actors.consumer import Consumer

    with settings.named():
        config = build(ConsumerConfig, options_of(settings, start, scope))
        commits = config.group_id is not None and config.enable_auto_commit
        # Rows of a Parquet file are in memory for long: they are committed when the file is complete.
        automatic = config.enable_auto_commit and form != "parquet"
        consumer = Consumer(config={**msgspec.structs.asdict(config), "enable_auto_commit": automatic})
    extent = Extent(count)
    idle = partial(check_reader, output.console.file) if file == STDIO else lambda: None
    written_out = True
    with terminable(), closing(consumer):
        try:
            with slow_notice(note, f"waiting for an answer of {', '.join(config.bootstrap_servers)}"):
                alone = None if config.group_id is not None else start or StartOffset("beginning")
                begin(consumer, scope, alone, stop, extent)
            with record_writer(output, form, file, render) as write:
                copy(consumer, extent, write, idle)
        except KeyboardInterrupt:
            if extent.bounded:
                raise
            written_out = False
        if commits and written_out:
            consumer.commit()
        elif commits and not automatic:
            consumer.commit({tp: extent.written[tp] for tp in consumer.assignment() & extent.written.keys()})
    return EXIT_DONE


# ------------------------------------------------------------ where to begin, and where to stop


class StartOffset(NamedTuple):
    """Place in each partition where reading begins. `value`: an offset, a number of records, or milliseconds since 1970."""

    kind: Literal["beginning", "end", "offset", "last", "time"]
    value: int = 0


def start_offset(offset: str | None, from_time: str | None) -> StartOffset | None:
    """Place that `--offset` and `--from-time` name, None where neither is given. Raises `UsageError`."""
    if from_time is not None:
        if offset is not None:
            raise UsageError("give either --offset or --from-time")
        return StartOffset("time", milliseconds(from_time, "--from-time"))
    if offset is None:
        return None
    if offset == "beginning" or offset == "end":
        return StartOffset("beginning" if offset == "beginning" else "end")
    if (number := re.fullmatch(r"(-?)(\d{1,18})", offset)) is None:
        raise UsageError(
            f"--offset {offset!r}: give beginning, end, an offset, or -N for the last N of each partition"
        )
    return StartOffset("last" if number[1] else "offset", int(number[2]))


def _stop(to_end: bool, until: str | None) -> int | bool:
    """Milliseconds since 1970 of `--until`; else whether to stop at the ends. Raises `UsageError`."""
    if until is None:
        return to_end
    if to_end:
        raise UsageError("give either --to-end or --until")
    at = milliseconds(until, "--until")
    if at > time.time() * 1000:  # wall clock: timestamps of records are times of day
        raise UsageError(f"--until {until}: lies in the future")
    return at


def options_of(
    settings: OptionValues, start: StartOffset | None, scope: Mapping[str, object]
) -> dict[str, Any]:
    """Options of the consumer. A group is joined only if the command line names one: a variable or file that is meant for a job
    would have this command take its partitions. Raises `UsageError` for what a group rules out."""
    options = dict(settings.options)
    for name in ("group_id", "group_instance_id"):
        if name in options and settings.sources[name].kind != "flag":
            del options[name]
    group = options.get("group_id")
    if group is None:
        return options
    if some := next((topic for topic, partitions in scope.items() if partitions is not None), None):
        raise UsageError(f"--group {group}: gives out the partitions: name {some} without any")
    if start is not None and start.kind not in ("beginning", "end"):
        raise UsageError(
            f"--group {group}: begins at its commits: --offset is beginning or end, for where there is none"
        )
    if start is not None:
        options["auto_offset_reset"] = "latest" if start.kind == "end" else "earliest"
    else:
        options.setdefault("auto_offset_reset", "earliest")
    return options


def begin(
    consumer: Consumer,
    scope: Mapping[str, list[int] | None],
    start: StartOffset | None,
    stop: int | bool,
    extent: Extent,
) -> None:
    """Has the consumer read the partitions, a member of a group its topics, and learns where it is to stop.

    `start`: None for a member of a group, which begins at its commits; `stop`: milliseconds since 1970, or whether to stop at the
    ends of the logs. Raises `UnknownTopicOrPartitionError`, and `UsageError` for a start outside of a log.
    """
    partitions = [
        TopicPartition(topic, partition)
        for topic, chosen in scope.items()
        for partition in existing_partitions(topic, chosen, consumer.partitions_for_topic(topic))
    ]
    if stop is True:
        extent.ends = consumer.end_offsets(partitions)
    elif stop is not False:
        extent.ends = _at_time(consumer, partitions, stop)
    if start is None:
        consumer.subscribe(list(scope))
        return
    at = starts_of(consumer, partitions, start)
    consumer.assign(partitions)
    for tp, offset in at.items():
        consumer.seek(tp, offset)


def starts_of(
    consumer: Consumer, partitions: list[TopicPartition], start: StartOffset
) -> dict[TopicPartition, int]:
    """Offsets where reading begins. Raises `UsageError` for an offset that a log doesn't have."""
    if start.kind == "time":
        return _at_time(consumer, partitions, start.value)
    if start.kind == "end":
        return consumer.end_offsets(partitions)
    first = consumer.beginning_offsets(partitions)
    if start.kind == "beginning":
        return first
    ends = consumer.end_offsets(partitions)
    if start.kind == "last":
        return {tp: max(first[tp], ends[tp] - start.value) for tp in partitions}
    for tp in partitions:
        if not first[tp] <= start.value <= ends[tp]:
            raise UsageError(
                f"--offset {start.value}: {tp.topic}-{tp.partition} begins at {first[tp]} and ends at {ends[tp]}"
            )
    return dict.fromkeys(partitions, start.value)


def _at_time(consumer: Consumer, partitions: list[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
    """Offsets of the first records at or after a time; ends of logs without one."""
    found = consumer.offsets_for_times(dict.fromkeys(partitions, at_ms))
    ends = consumer.end_offsets([tp for tp in partitions if found[tp] is None])
    return {tp: ends[tp] if listed is None else listed.offset for tp, listed in found.items()}


class Extent:
    """Decides how much of each batch is taken, and when everything was: up to the ends of partitions and a number of records.

    `ends`: offset behind the last record of each partition, None for no end; `written`: offset behind what was taken.
    """

    def __init__(self, count: int | None = None, ends: dict[TopicPartition, int] | None = None) -> None:
        self.ends = ends
        self.written: dict[TopicPartition, int] = {}
        self._left = count
        self._reached: set[TopicPartition] = set()

    @property
    def bounded(self) -> bool:
        """Whether there is an end."""
        return self.ends is not None or self._left is not None

    def rows(self, tp: TopicPartition, offsets: npt.NDArray[np.int64]) -> int:
        """Number of a batch's records that belong to it."""
        rows = len(offsets)
        if self.ends is not None:
            rows = int(offsets.searchsorted(self.ends[tp])) if tp in self.ends else rows
        return rows if self._left is None else min(rows, self._left)

    def took(self, tp: TopicPartition, next_offset: int, rows: int) -> None:
        """Counts records of a partition that were written, up to an offset."""
        self.written[tp] = next_offset
        if self._left is not None:
            self._left -= rows

    def complete(self, consumer: Consumer, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Whether everything was read. `partitions`: those whose positions may have changed, None for all."""
        if self._left == 0:
            return True
        if self.ends is None:
            return False
        assigned = consumer.assignment()
        self._reached &= assigned
        for tp in (assigned if partitions is None else assigned.intersection(partitions)) - self._reached:
            if tp not in self.ends:  # a partition that came later, in a group
                self.ends |= consumer.end_offsets([tp])
            if self._is_behind(consumer, tp, self.ends[tp]):
                self._reached.add(tp)
        return bool(assigned) and assigned == self._reached

    @staticmethod
    def _is_behind(consumer: Consumer, tp: TopicPartition, end: int) -> bool:
        try:
            return consumer.position(tp, timeout_ms=POLL_MS) >= end
        except (KafkaTimeoutError, UsageError):  # it isn't known yet, or was taken away this very moment
            return False


def copy(consumer: Consumer, extent: Extent, write: Write, idle: Callable[[], object] = lambda: None) -> None:
    """Hands the records of the extent to `write`, by the batch. The consumer's positions are then behind them.

    `idle` is called now and then while there are no records."""
    for batch in batches(consumer, extent, idle):
        write(batch)


def batches(
    consumer: Consumer, extent: Extent, idle: Callable[[], object] = lambda: None
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the extent, by the batch; each counts as taken when the next one is asked for. `idle`: as for `copy`."""
    from kafka_actors.base.batches import numbers

    complete = extent.complete(consumer)
    while not complete:
        batch = consumer.poll_batch(timeout_ms=POLL_MS)
        if batch is None:
            idle()
            complete = extent.complete(consumer)
            continue
        tp = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        offsets = numbers(batch.column("offset"))
        rows = extent.rows(tp, offsets)
        if rows:
            yield batch.slice(0, rows)
            extent.took(tp, int(offsets[rows - 1]) + 1, rows)
        if rows < batch.num_rows:
            consumer.seek(tp, int(offsets[rows]))
            consumer.pause(tp)
        complete = extent.complete(consumer, [tp])


# ------------------------------------------------------------ writing


def _renderer(form: str, template: str | None, delimiter: str | None, show_null: bool) -> Render | None:
    """Function that makes the text of a batch, None where it isn't text. Raises `UsageError`."""
    from .record_text import NULL, RecordFormat, json_lines, literal

    if form != "text":
        flags = {"--format": template, "--key-delimiter": delimiter, "--null": show_null or None}
        if wrong := next((option for option, value in flags.items() if value is not None), None):
            raise UsageError(f"{wrong}: goes with --output text, not with {form}")
        return json_lines if form == "json" else None
    if template is not None and delimiter is not None:
        raise UsageError("give either --format or --key-delimiter")
    if template is None:
        template = r"%s\n" if delimiter is None else rf"%k{literal(delimiter)}%s\n"
    return RecordFormat(template, NULL if show_null else b"").render
