"""`kafka-actors produce`: sends lines of text, JSON lines, Arrow or Parquet, by the batch; errors name the line of each record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from kafka_actors.config import build
from kafka_actors.errors import KafkaActorsError, MessageTooLargeError, UndeliveredError, UsageError
from kafka_actors.options import ProducerConfig

from .command import EXIT_DONE, EXIT_FAILED, INT_MAX, IntRange, terminable
from .connection import client_command
from .job_options import DeclaredOption
from .output import Output, note
from .record_files import STDIO, arrow_batches, is_pipe, opened_for_reading
from .results import RECORD_FORMS, show

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_actors.producer import BatchFuture, Producer

    from .option_sources import OptionValues

__all__ = ["BatchSender", "InputBatch", "LineFormat", "complete_lines", "produce", "read_batches"]

CHUNK_BYTES = 1024 * 1024
"""Most that is read at a time, and becomes one batch; a pipe gives what it has."""
OF_LINES = ("text", "json")
OF_TEXT = ("key_delimiter", "key", "headers", "null")


@click.command()
@click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    help="Topic to send to; by default the one that each record names, which text can't.",
)
@click.option(
    "-p",
    "--partition",
    type=IntRange(0, INT_MAX),
    metavar="ID",
    help="One partition for all records, in place of the one that a record names or that its key leads to.",
)
@click.option("--repartition", is_flag=True, help="Let keys choose partitions, though records name one.")
@click.option(
    "-i",
    "--input",
    "form",
    type=click.Choice(RECORD_FORMS),
    default="text",
    show_default=True,
    help="A value a line, JSON lines, Arrow or Parquet: the forms that consume writes.",
)
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help=r"Text: what stands before this is the key; \t, \xHH …"
)
@click.option("-k", "--key", metavar="TEXT", help="Text: the key of lines without one.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="Text: a header; may be repeated.",
)
@click.option(
    "-Z",
    "--null",
    is_flag=True,
    help="Text: send empty values and keys as null; empty lines are skipped otherwise.",
)
@click.option("-z", "--compression-type", metavar="CODEC", cls=DeclaredOption, kind=ProducerConfig)
@click.argument("files", metavar="[FILE]…", nargs=-1)
@client_command(ProducerConfig, "compression_type")
def produce(
    output: Output,
    settings: OptionValues,
    topic: str | None,
    partition: int | None,
    repartition: bool,
    form: str,
    files: tuple[str, ...],
    **text: Any,
) -> int:
    """Send records from files, or from stdin.

    A record that can't be sent is reported with its line, the others are sent, and the exit code is 1.
    """
    if repartition and partition is not None:
        raise UsageError("give either --partition or --repartition")
    if form != "text" and (wrong := next((name for name in OF_TEXT if text[name]), None)):
        option = "--header" if wrong == "headers" else "--" + wrong.replace("_", "-")
        raise UsageError(f"{option}: goes with --input text, not with {form}")
    if form == "text" and topic is None:
        raise UsageError("--topic: name the topic to send to")
    lines = LineFormat(**text)
    for each in files or (STDIO,):
        check_file(form, each)
    from kafka_actors.producer import Producer

    with settings.named():
        config = build(ProducerConfig, settings.options)
        producer = Producer(config=msgspec.structs.asdict(config))
    with terminable(), producer:
        sender = BatchSender(producer, topic, output.error)
        with _counted(sender):
            try:
                for each in files or (STDIO,):
                    for batch in read_batches(form, each, lines, sender.failed):
                        sender.send(batch.to(partition, repartition))
            finally:  # also after Ctrl-C: what was read is sent
                sender.settle()
    show(output, "text", [f"{sender.said}."], None)
    if sender.lost:
        output.error(f"{sender.lost} {'record was' if sender.lost == 1 else 'records were'} not sent")
        return EXIT_FAILED
    return EXIT_DONE


@contextmanager
def _counted(sender: BatchSender) -> Iterator[None]:
    """Context manager that says how many records were sent before an error. What was wrong about a file is no wrong usage then: who gives
    the same command again has records twice."""
    try:
        yield
    except BaseException as error:
        if sender.sent:
            note(f"{sender.said} before that.")
            if isinstance(error, UsageError):
                raise KafkaActorsError(str(error)) from error
        raise


# ------------------------------------------------------------ reading


class InputBatch(NamedTuple):
    """Rows of the input. `origin`: of which file, empty for stdin; `unit`: line or row; `numbers`: of each row, from 1."""

    batch: pa.RecordBatch
    origin: str
    unit: str
    numbers: Sequence[int]

    def to(self, partition: int | None, repartition: bool) -> InputBatch:
        """The batch with one partition for all rows, or without the partitions that it names."""
        if partition is None and not repartition:
            return self
        import pyarrow as pa

        at = self.batch.schema.get_field_index("partition")
        batch = self.batch if at < 0 else self.batch.remove_column(at)
        if partition is not None:
            batch = batch.append_column(
                "partition", pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
            )
        return self._replace(batch=batch)

    def part(self, first: int, last: int) -> InputBatch:
        """The rows from `first` up to `last`."""
        return self._replace(batch=self.batch.slice(first, last - first), numbers=self.numbers[first:last])


Failed = Callable[[str, str, Sequence[int], str], object]
"""Function that is told of records that can't be sent: file, unit, numbers and the reason."""


def check_file(form: str, file: str) -> None:
    """Raises `UsageError` as `read_batches` would at the beginning of a file. From stdin nothing is read, and a pipe is not opened: closed
    again, it would end its writer."""
    if file != STDIO and is_pipe(file):
        return
    with opened_for_reading(form, file) as stream:
        if form not in OF_LINES and file != STDIO:
            with _naming(form, file):
                arrow_batches(form, stream)


def read_batches(form: str, file: str, lines: LineFormat, failed: Failed) -> Iterator[InputBatch]:
    """Batches of a file, or of stdin. Raises `UsageError` for one that can't be opened or isn't of the form."""
    origin = "" if file == STDIO else file
    with opened_for_reading(form, file) as stream:
        if form in OF_LINES:
            yield from _line_batches(form, stream, origin, lines, failed)
            return
        number = 1
        with _naming(form, origin):
            for batch in arrow_batches(form, stream):
                yield InputBatch(batch, origin, "row", range(number, number + batch.num_rows))
                number += batch.num_rows


@contextmanager
def _naming(form: str, origin: str) -> Iterator[None]:
    """Context manager that names the file in errors of what it holds."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError, TypeError) as error:
        raise UsageError(f"--input {form}: {origin or 'stdin'}: {error}") from None


def _line_batches(
    form: str, stream: IO[bytes], origin: str, lines: LineFormat, failed: Failed
) -> Iterator[InputBatch]:
    from .record_text import batch_of

    numbers = count(1)
    for chunk in complete_lines(stream):
        numbered = [(next(numbers), line) for line in chunk]
        if form == "text":
            found, batch = lines.batch(numbered)
        else:
            filled = [each for each in numbered if each[1].strip()]
            found, batch = batch_of(filled, lambda number, reason: failed(origin, "line", [number], reason))
        if found:
            yield InputBatch(batch, origin, "line", found)


def complete_lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Lines of a stream without their ends, as many at a time as it has; the last one may lack its end."""
    begun: list[bytes] = []  # a line whose end has not come yet
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    while data := read(CHUNK_BYTES):
        first, *lines = data.split(b"\n")
        begun.append(first)
        if lines:
            complete = [b"".join(begun), *lines[:-1]]
            begun = [lines[-1]]
            yield complete
    if rest := b"".join(begun):
        yield [rest]


class LineFormat:
    """Records of lines of text: the key before a delimiter, one key for all others, and headers. Raises `UsageError`."""

    def __init__(
        self,
        key_delimiter: str | None = None,
        key: str | None = None,
        headers: Sequence[str] = (),
        null: bool = False,
    ) -> None:
        from .record_text import unescaped

        self._delimiter = None if key_delimiter is None else unescaped(key_delimiter, "--key-delimiter")
        if self._delimiter == b"":
            raise UsageError("--key-delimiter '': is empty")
        self._key = None if key is None else key.encode("utf-8", "surrogateescape")
        self._headers = [_header(text) for text in headers]
        self._null = null

    def batch(self, lines: Sequence[tuple[int, bytes]]) -> tuple[list[int], pa.RecordBatch]:
        """Batch of numbered lines, and the number of each row's line."""
        import pyarrow as pa

        from kafka_actors.base.batches import HEADERS_TYPE

        kept = lines if self._null else [each for each in lines if each[1]]
        values: list[bytes | None] = [line for _, line in kept]
        columns: dict[str, Any] = {}
        if self._delimiter is not None:
            keys, values = self._split(values)
            columns["key"] = pa.array(keys, pa.binary())
        elif self._key is not None:
            columns["key"] = pa.repeat(pa.scalar(self._key, pa.binary()), len(values))
        if self._null:
            values = [value or None for value in values]
        columns["value"] = pa.array(values, pa.binary())
        if self._headers:
            columns["headers"] = pa.array([self._headers] * len(values), HEADERS_TYPE)
        return [number for number, _ in kept], pa.RecordBatch.from_pydict(columns)

    def _split(self, lines: Sequence[bytes | None]) -> tuple[list[bytes | None], list[bytes | None]]:
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for line in lines:
            before, found, behind = (line or b"").partition(self._delimiter or b"")
            keys.append((before if before or not self._null else None) if found else self._key)
            values.append(behind if found else before)
        return keys, values


def _header(text: str) -> dict[str, str | bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--header {text!r}: give NAME=VALUE, or NAME for a null")
    return {"key": name, "value": value.encode("utf-8", "surrogateescape") if equals else None}


# ------------------------------------------------------------ sending


class BatchSender:
    """Sends batches, and reports the records that were not sent by their lines, one line for each run of them.

    `say` is called with the text of each report. `sent` and `lost` count records.
    """

    def __init__(self, producer: Producer, topic: str | None, say: Callable[[str], object]) -> None:
        self._producer = producer
        self._topic = topic
        self._say = say
        self._waiting: deque[tuple[BatchFuture, InputBatch]] = deque()
        self.sent = 0
        self.lost = 0

    @property
    def said(self) -> str:
        """Number of records that were sent, in words."""
        return f"Produced {self.sent} {'record' if self.sent == 1 else 'records'}"

    def send(self, part: InputBatch) -> None:
        """Sends a batch; where a record of it is refused, the others without it. Raises errors of the topic and the cluster."""
        try:
            self._waiting.append((self._producer.send_batch(part.batch, self._topic), part))
        except (MessageTooLargeError, UsageError) as error:  # then nothing of it was sent
            rows = part.batch.num_rows
            if rows > 1:
                self.send(part.part(0, rows // 2))
                self.send(part.part(rows // 2, rows))
            else:
                self.failed(part.origin, part.unit, part.numbers, _plain(error))
        while self._waiting and self._waiting[0][0].done():
            self._take()

    def settle(self) -> None:
        """Waits for the outcome of everything that was sent."""
        while self._waiting:
            self._take()

    def _take(self) -> None:
        future, part = self._waiting.popleft()
        rows: list[int] = []
        try:
            future.result()
        except UndeliveredError as error:
            rows = error.rows or []
            reason = "; ".join(dict.fromkeys(map(str, error.errors.values())))
            self.failed(part.origin, part.unit, [part.numbers[row] for row in rows], reason)
        self.sent += part.batch.num_rows - len(rows)

    def failed(self, origin: str, unit: str, numbers: Sequence[int], reason: str) -> None:
        """Counts and reports records that were not sent."""
        self.lost += len(numbers)
        where = f"{origin}, " if origin else ""
        for first, last in _runs(numbers):
            said = f"{unit} {first}" if first == last else f"{unit}s {first}-{last}"
            self._say(f"{where}{said}: {reason}")


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of numbers that follow each other."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def _plain(error: Exception) -> str:
    """Text of an error of `send_batch` about one row: the caller says which one."""
    return str(error).removeprefix("send_batch: ").replace("row 0 ", "it ")
