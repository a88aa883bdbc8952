"""`Decoder`: bytes of fetch responses in, bounded Arrow batches out.

The kernel scans the headers of batches into a table, a span at a time, and checks their checksums. Batches that are compressed, or
may belong to an aborted transaction, are prepared here: decompressed into a scratch buffer, or left out. Then the kernel decodes the
records of the table's batches into columns until those are full, which makes a chunk. So Python runs per batch, never per
record.

An error of a batch is raised after the chunks before it, with the offset at which reading may go on (`resume`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import pyarrow as pa

from kafka_actors.errors import (
    BatchTooLargeError,
    CorruptRecordBatchError,
    MalformedTimestampError,
    RecordError,
    UnknownMagicError,
    UnsupportedCompressionError,
)

from . import legacy
from .arrow import EMPTY, record_batch
from .batch import (
    CODEC_MASK,
    CONTROL,
    MAX_BINARY,
    MIN_RECORD,
    TRANSACTIONAL,
    ColumnField,
    ColumnsView,
    Fill,
    Kernel,
    Scan,
)
from .compression import (
    TABLE_ROWS,
    DecompressionError,
    OversizedError,
    UnknownCodecError,
    Workspace,
    borrow,
    give_back,
)
from .kernel import ACTIVE
from .record import control_type
from .resume import behind_bad_timestamps, is_cut_off, resume_offset
from .transactions import ABORT, NONE_ABORTED, AbortedTransactions

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

_SPAN: Final = 512 * 1024
"""Bytes checked at a time: after the checksum they are still in the cache when they are decoded."""
_FLUSH: Final = 1024 * 1024
"""Decompressed bytes that wait at most before they are decoded."""
_RESERVE: Final = 64 * 1024 * 1024
"""Bytes of a column that are reserved at most for records that aren't decompressed yet."""

_SCAN_ERRORS: Final = {
    Scan.BAD_LENGTH: "the batch claims an impossible length",
    Scan.BAD_CRC: "the checksum is wrong",
    Scan.BAD_HEADER: "the batch header claims impossible offsets or counts",
}
_FILL_ERRORS: Final = {
    Fill.TRUNCATED: "a record is cut off",
    Fill.BAD_FIELD: "a record claims an impossible length",
    Fill.BAD_HEADER_COUNT: "a record claims an impossible number of headers",
    Fill.BAD_OFFSET: "the offsets of the records do not rise, or leave the batch",
    Fill.TRAILING: "there are bytes behind a record or behind the last one",
    Fill.BAD_CRC: "the checksum of a message is wrong",
    Fill.BAD_FORMAT: "a message inside a compressed one is compressed too, or of another format",
}

_SOURCE, _POS, _END, _COUNT, _ATTRIBUTES = map(
    int, (ColumnField.SOURCE, ColumnField.POS, ColumnField.END, ColumnField.COUNT, ColumnField.ATTRIBUTES)
)
_END_OF_BYTES, _MORE, _LEGACY, _BAD_MAGIC = map(int, (Scan.END, Scan.MORE, Scan.LEGACY, Scan.BAD_MAGIC))
_DONE, _FULL, _BAD_TIMESTAMP = map(int, (Fill.DONE, Fill.FULL, Fill.BAD_TIMESTAMP))
"""Fields and codes that are used for each batch, as constants: looking up a member of an enum takes ten times as long."""

_UNREADABLE: Final = (UnknownCodecError, OversizedError, DecompressionError, legacy.LegacyError)


class Limits(msgspec.Struct, frozen=True):
    """Bounds of what a Decoder holds and hands out.

    A batch that unpacks to more than `max_decompressed_batch_bytes` is a BatchTooLargeError. A chunk has at most
    `chunk_rows` records and about `chunk_bytes` bytes (keys, values and headers; a single larger record is a chunk
    of its own). `chunk_bytes` stays below 2 GiB, what Arrow's binary columns hold.
    """

    max_decompressed_batch_bytes: int = 128 * 1024 * 1024
    chunk_rows: int = 65536
    chunk_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 < value <= MAX_BINARY:
                raise ValueError(f"{name} is from 1 to {MAX_BINARY}, not {value!r}")


class Chunk(msgspec.Struct, frozen=True):
    """Records of one partition in order, and the offset at which reading goes on.

    `next_offset` is the offset behind all records that were read or left out (control, aborted and compacted ones included): the position
    to fetch from next, and to commit when `batch` is processed. `leader_epoch` is that of the last batch read and of all rows, -1 where
    their format has none. `batch` has 0 rows where only the position moved. `last`: it is known that nothing comes behind it.
    """

    batch: pa.RecordBatch
    next_offset: int
    leader_epoch: int
    last: bool = False

    def first(self, rows: int) -> Chunk:
        """Returns the first rows, with the position behind them; all of it where there are no more."""
        if self.batch.num_rows <= rows:
            return self
        return Chunk(self.batch.slice(0, rows), self.batch["offset"][rows].as_py(), self.leader_epoch)


class _UnreadableError(Exception):
    """A batch can't be prepared: the class of its error, and the reason."""

    def __init__(self, error: type[RecordError], reason: str) -> None:
        super().__init__(reason)
        self.error = error


class Decoder:
    """Decodes the bytes of one partition out of one fetch response, or of several that follow each other.

    `fetch_offset` is the first offset wanted: earlier records of the first batch are dropped. `aborted` is the response's list of
    aborted transactions, (producer_id, first_offset); only read_committed heeds it. `log_end` is the high watermark that came with
    the bytes, of read_committed the last stable offset, if it is known: `RecordError.next_offset` is never behind it. Without
    `check_crcs` no checksum of a batch is verified, but those of messages of the old formats.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        fetch_offset: int = 0,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        aborted: Iterable[tuple[int, int]] = (),
        log_end: int | None = None,
        check_crcs: bool = True,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        kernel: Kernel = ACTIVE,
    ) -> None:
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(
                f"isolation_level is 'read_uncommitted' or 'read_committed', not {isolation_level!r}"
            )
        self.topic = topic
        self.partition = partition
        self.limits = limits
        self.next_offset = fetch_offset
        self._kernel = kernel
        self._log_end = log_end
        self._check_crcs = check_crcs
        committed = isolation_level == "read_committed"
        self._aborted = AbortedTransactions(aborted) if committed and aborted else NONE_ABORTED
        self._columns: ColumnsView | None = None
        self._rows_per_byte = 0.0
        self._growth = 1.0  # decompressed bytes per fetched byte
        self._ahead = 0  # bytes of the parts behind the present one
        self._following: Buffer | None = None  # the part behind the present one

    def feed(self, *parts: Buffer) -> Iterator[Chunk]:
        """Yields the chunks of `parts`, each all the bytes of the partition in one response, as they get ready.

        A partial batch at the end of a part is normal and left out. Raises CorruptRecordBatchError,
        BatchTooLargeError, UnsupportedCompressionError, UnknownMagicError or MalformedTimestampError, with offset and
        next_offset, after the records before the bad place were yielded. `parts` are not held when the generator has
        ended.
        """
        if (small := self._small(parts)) is not None:
            yield small
            return
        work = borrow()
        try:
            self._ahead = sum(len(memoryview(part).cast("B")) for part in parts)
            for part, self._following in zip(parts, (*parts[1:], None), strict=True):
                with memoryview(part) as whole, whole.cast("B") as view:
                    self._ahead -= len(view)
                    yield from self._part(view, work)
            yield from self._flush()
        finally:
            self._columns = self._following = None
            give_back(work)

    def _small(self, parts: tuple[Buffer, ...]) -> Chunk | None:
        """Returns the only chunk of parts that the kernel decodes in one step; None for any other."""
        most, which = self.limits, (self.topic.encode(), self.partition, self._check_crcs)
        without = TRANSACTIONAL | CONTROL if self._aborted.active else 0
        found = self._kernel.small(
            parts, self.next_offset, most.chunk_rows, most.chunk_bytes, without, *which
        )
        if found is None:
            return None
        batch, self.next_offset, leader_epoch = found
        return Chunk(batch, self.next_offset, leader_epoch, last=True)

    def _part(self, view: memoryview, work: Workspace) -> Iterator[Chunk]:
        pos, status = 0, _MORE
        while status in (_MORE, _LEGACY):
            start = pos
            n, pos, status, flags, count = self._kernel.scan(view, pos, work.table, _SPAN, self._check_crcs)
            if n:
                self._rows_per_byte = count / (pos - start)
                yield from self._batches(view, work, n, flags)
            if status == _LEGACY:
                pos = yield from self._legacy(view, work, pos)
        if status == _END_OF_BYTES:
            return
        yield from self._flush()
        if status == _BAD_MAGIC:
            raise self._error(UnknownMagicError, f"magic {view[pos + 16]} is no format of Kafka's", view, pos)
        raise self._error(CorruptRecordBatchError, _SCAN_ERRORS[Scan(status)], view, pos)

    def _batches(self, view: memoryview, work: Workspace, n: int, flags: int) -> Iterator[Chunk]:
        """Decodes the table's first n batches; those that are compressed or may be aborted are prepared first."""
        if not flags & CODEC_MASK and not self._aborted.active:
            yield from self._fill(view, work, 0, n)
            return
        lo = 0
        for i, row in enumerate(work.table[:n].tolist()):
            try:
                self._prepare(view, work, i, row)
            except _UnreadableError as error:
                yield from self._fill(view, work, lo, i)
                yield from self._flush()
                raise self._error(error.error, str(error), view, row[ColumnField.START]) from error.__cause__
            if work.scratch.used >= _FLUSH:
                yield from self._fill(view, work, lo, i + 1)
                lo = i + 1
                work.scratch.reset()
        yield from self._fill(view, work, lo, n)
        work.scratch.reset()

    def _prepare(self, view: memoryview, work: Workspace, i: int, row: list[int]) -> None:
        """Decompresses one batch; empties it in the table when its transaction was aborted."""
        attributes = row[_ATTRIBUTES]
        if attributes & (TRANSACTIONAL | CONTROL) and self._aborted.active:
            self._aborted.advance(row[ColumnField.LAST_OFFSET])
            if self._aborted.is_aborted(row[ColumnField.PRODUCER_ID]):
                if attributes & CONTROL:
                    self._end_transaction(view, work, row)
                work.table[i, ColumnField.COUNT] = 0
                return
        if attributes & CODEC_MASK and row[_COUNT] and not attributes & CONTROL:
            start, end = self._decompress(view, work, row)
            if row[_COUNT] > (end - start) // MIN_RECORD:
                raise _UnreadableError(
                    CorruptRecordBatchError,
                    f"{end - start} bytes can't hold the {row[_COUNT]} records it claims",
                )
            work.table[i, _SOURCE] = 1
            work.table[i, _POS] = start
            work.table[i, _END] = end

    def _decompress(self, view: memoryview, work: Workspace, row: list[int]) -> tuple[int, int]:
        size = row[_END] - row[_POS]
        failure: _UnreadableError | None = None
        with view[row[_POS] : row[_END]] as packed:
            try:
                start, end = work.append(
                    row[_ATTRIBUTES] & CODEC_MASK, packed, self.limits.max_decompressed_batch_bytes
                )
            except _UNREADABLE as error:
                failure = self._unreadable(error)
        if failure is not None:
            # Its context must not be the codec's error, whose frames hold slices of the part.
            raise failure
        self._growth = (end - start) / max(1, size)
        return start, end

    def _unreadable(self, error: Exception) -> _UnreadableError:
        """Returns the error of the batch for one of `_UNREADABLE`."""
        if isinstance(error, UnknownCodecError):
            return _UnreadableError(UnsupportedCompressionError, f"compression {error} is unknown")
        if isinstance(error, OversizedError):
            limit = self.limits.max_decompressed_batch_bytes
            reason = f"it decompresses to more than max_decompressed_batch_bytes ({limit})"
            return _UnreadableError(BatchTooLargeError, reason)
        if isinstance(error, DecompressionError):
            return _UnreadableError(CorruptRecordBatchError, f"it can't be decompressed: {error}")
        return _UnreadableError(CorruptRecordBatchError, str(error))

    def _end_transaction(self, view: memoryview, work: Workspace, row: list[int]) -> None:
        """Reads a control batch of a producer whose transaction is left out: an abort marker ends that."""
        if not row[ColumnField.COUNT]:
            return
        if row[ColumnField.ATTRIBUTES] & CODEC_MASK:
            start, end = self._decompress(view, work, row)
            body = work.scratch.buffer[start:end]
        else:
            body = bytes(view[row[ColumnField.POS] : row[ColumnField.END]])
        kind = control_type(body)
        if kind is None:
            raise _UnreadableError(CorruptRecordBatchError, "a control record without a type")
        if kind == ABORT:
            self._aborted.end(row[ColumnField.PRODUCER_ID])

    def _legacy(self, view: memoryview, work: Workspace, pos: int) -> Generator[Chunk, None, int]:
        """Decodes messages of the old formats from `pos` on; returns the position behind them."""
        n, limit = 0, self.limits.max_decompressed_batch_bytes
        failure: _UnreadableError | None = None
        while n < TABLE_ROWS and work.scratch.used < _FLUSH and legacy.complete_at(view, pos):
            try:
                row, end = legacy.read(view, pos, work, limit, self._kernel)
            except _UNREADABLE as error:
                failure = self._unreadable(error)
                break
            work.table[n] = list(row.values())
            pos, n = end, n + 1
        yield from self._fill(view, work, 0, n)
        work.scratch.reset()
        if failure is not None:
            yield from self._flush()
            raise self._error(failure.error, str(failure), view, pos)
        return pos

    def _fill(self, view: memoryview, work: Workspace, lo: int, hi: int) -> Iterator[Chunk]:
        """Decodes batches lo..hi of the table, which are ready, into columns; yields those that got full."""
        while lo < hi:
            if self._columns is None:
                self._columns = self._new_columns(view, work, lo)
            lo, code = self._columns.fill(view, work.scratch.buffer, work.table, lo, hi)
            if code == _DONE:
                return
            yield from self._flush()
            if code == _BAD_TIMESTAMP:
                raise self._bad_timestamp(view, work, work.table[lo].tolist())
            if code != _FULL:
                start = int(work.table[lo, ColumnField.START])
                raise self._error(CorruptRecordBatchError, _FILL_ERRORS[Fill(code)], view, start)

    def _new_columns(self, view: memoryview, work: Workspace, lo: int) -> ColumnsView:
        left = len(view) - int(work.table[lo, ColumnField.START]) + self._ahead
        # What headers claim is a guess until the records are there: no more is reserved than their bytes could hold.
        rows = min(int(self._rows_per_byte * left * 1.05), (left + work.scratch.used) // MIN_RECORD) + 16
        unpacked = min(int(left * self._growth * 1.05), left + _RESERVE)
        return self._kernel.columns(
            self.next_offset, self.limits.chunk_rows, self.limits.chunk_bytes, rows, unpacked
        )

    def _flush(self) -> Iterator[Chunk]:
        """Yields what the columns hold, if they hold anything or if the position moved."""
        columns, self._columns = self._columns, None
        if columns is None or (columns.rows == 0 and columns.next_offset <= self.next_offset):
            return
        self.next_offset = columns.next_offset
        batch = record_batch(self.topic, self.partition, columns.finish())
        yield Chunk(batch, columns.next_offset, columns.leader_epoch)

    def _error(self, error: type[RecordError], reason: str, view: memoryview, start: int) -> RecordError:
        """Returns the error for the batch that begins at `start`."""
        with memoryview(self._following or b"") as whole, whole.cast("B") as following:
            offset, behind = resume_offset(
                view, start, self.next_offset, self._kernel, self._log_end, following
            )
            found = error(self.topic, self.partition, offset, behind, reason)
            found.cut_off = behind is None and is_cut_off(view, start, self._log_end, following)
        return found

    def _bad_timestamp(self, view: memoryview, work: Workspace, row: list[int]) -> RecordError:
        """Returns the error for the record that the row of the batch table is at."""
        with memoryview(work.scratch.buffer) as unpacked:
            offset, timestamp, behind = behind_bad_timestamps(
                unpacked if row[ColumnField.SOURCE] else view, row
            )
        reason = (
            f"the record's timestamp, {timestamp}, is beyond what microseconds in 64 bits hold: Kafka's timestamps are "
            "milliseconds, and its producer seems to have written a finer unit"
        )
        return MalformedTimestampError(self.topic, self.partition, offset, behind, reason)


def decode(data: Buffer, *, topic: str, partition: int) -> pa.RecordBatch:
    """Returns all records of `data` as one batch.

    Raises what Decoder.feed raises, and OverflowError when they pass what one batch can hold (2 GiB a column).
    """
    limits = Limits(chunk_rows=MAX_BINARY, chunk_bytes=MAX_BINARY)
    chunks = [chunk.batch for chunk in Decoder(topic, partition, limits=limits).feed(data)]
    try:
        return pa.concat_batches(chunks) if len(chunks) > 1 else chunks[0] if chunks else EMPTY
    except pa.ArrowInvalid:
        raise OverflowError("the records pass 2 GiB; read them in chunks with Decoder") from None
