"""Topic and partition of each row of an Arrow batch, and the choice of a partition for records without a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_actors.base.topics import check_topic
from kafka_actors.errors import ConfigError, MessageTooLargeError, UsageError
from kafka_actors.records.batch import HEADER_SIZE, MAX_MILLIS, Kernel, Places, RecordRows
from kafka_actors.records.encode import row_columns


class StickyPartitioner:
    """Stays with one partition of a topic for `batch_size` bytes, then moves to another one at random.

    So one batch gets full instead of many being begun, and each partition gets the same share of bytes. `rand`
    returns 0..1.
    """

    def __init__(self, batch_size: int, rand: Callable[[], float]) -> None:
        self._batch_size = batch_size
        self._rand = rand
        self._partition = -1
        self._left = 0

    def choose(self, available: Sequence[int]) -> int:
        """Returns the partition for the next record, one of `available`, which is not empty."""
        if self._left <= 0 or self._partition not in available:
            others = [p for p in available if p != self._partition] or list(available)
            self._partition = others[min(int(self._rand() * len(others)), len(others) - 1)]
            self._left = self._batch_size
        return self._partition

    @property
    def left(self) -> int:
        """Bytes until it moves on."""
        return self._left

    def spend(self, size: int) -> None:
        """Counts bytes that went to the chosen partition."""
        self._left -= size


COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
_IGNORED = ("offset", "timestampType")
"""Further columns of a consumer's batches, which may be sent as they are."""


class PartitionRows(NamedTuple):
    """Rows of a batch that go to one topic; `numbers` are their numbers in the batch, None for all of them."""

    topic: str
    batch: pa.RecordBatch
    numbers: npt.NDArray[np.int64] | None


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[PartitionRows]:
    """Yields the rows of each topic: all go to `topic` if it isn't None, else the column `topic` decides.

    Raises `UsageError` for unknown columns, and where a row has no topic or one whose name can't be a topic's.
    """
    check_columns(batch.schema)
    if topic is not None:
        yield PartitionRows(topic, batch, None)
        return
    at = batch.schema.get_field_index("topic")
    if at < 0:
        raise UsageError("send_batch: give topic=, or a column topic")
    column = batch.column(at)
    if pa.types.is_dictionary(column.type):  # whose nulls may also be among its values
        column = column.dictionary_decode()
    if column.null_count:
        row = next(row for row, name in enumerate(column) if not name.is_valid)
        raise UsageError(f"send_batch: row {row} has no topic")
    if not batch.num_rows:
        return
    try:
        encoded = column.cast(pa.string()).dictionary_encode()
    except pa.ArrowInvalid as error:
        raise UsageError(f"send_batch: the column topic: {error}") from None
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code in np.unique(codes).tolist():
        numbers = np.flatnonzero(codes == code)
        everything = len(numbers) == batch.num_rows
        rows = batch if everything else batch.take(pa.array(numbers))
        yield PartitionRows(_checked(names[code]), rows, None if everything else numbers)


def _checked(topic: str) -> str:
    """The topic that rows name. A name that can't be is an error of these rows, as one that is missing."""
    try:
        return check_topic(topic)
    except ConfigError as error:
        raise UsageError(f"send_batch: the column topic {error.message}") from None


def check_columns(schema: pa.Schema) -> None:
    """Raises `UsageError` for an unknown column, since the values of a misspelt one would be lost silently, and where there are columns
    without `value`, since each row would be a tombstone. A batch without any column has no rows."""
    unknown = [name for name in schema.names if name not in COLUMNS and name not in _IGNORED]
    if unknown:
        raise UsageError(
            f"send_batch: there is a column {unknown[0]!r}: the columns are {', '.join(COLUMNS)}; "
            "put what is to be sent into value"
        )
    if schema.names and "value" not in schema.names:
        raise UsageError(
            "send_batch: there is no column 'value', which is what is sent: for tombstones give it, all null"
        )
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise UsageError(f"send_batch: there is more than one column {name!r}")


def rows_of(part: PartitionRows, kernel: Kernel, now_ms: int, max_request_size: int) -> RecordRows:
    """Returns the rows ready to be written. Raises `UsageError` for a column of another type and for a timestamp that the
    readers here can't express, `MessageTooLargeError`. Negative timestamps are taken: rows may be as they were read, and records
    of Kafka's first format have none, which is -1."""
    try:
        columns = row_columns(part.batch, now_ms)
    except (TypeError, OverflowError) as error:
        raise UsageError(f"send_batch: {error}") from None
    if columns.timestamps is not None:
        stamps = columns.timestamps
        wrong = np.flatnonzero((stamps > MAX_MILLIS) | (stamps < -MAX_MILLIS))
        if len(wrong):
            raise malformed_timestamp(
                f"send_batch: timestamp of row {_number(part, int(wrong[0]))}", int(stamps[wrong[0]])
            )
    rows = kernel.rows(columns, now_ms)
    row, size = rows.largest()
    if size + HEADER_SIZE > max_request_size:
        raise too_large(part.topic, None, f"row {_number(part, row)}", size + HEADER_SIZE, max_request_size)
    return rows


def _number(part: PartitionRows, row: int) -> int:
    """Returns the row's number in the user's batch."""
    return row if part.numbers is None else int(part.numbers[row])


def malformed_timestamp(what: str, millis: int) -> UsageError:
    """Returns the error of a timestamp that doesn't fit the columns here and on Spark, for example nanoseconds by mistake."""
    return UsageError(f"{what} is {millis}: Arrow's columns, in microseconds, hold {MAX_MILLIS} at most")


def too_large(topic: str, partition: int | None, what: str, size: int, limit: int) -> MessageTooLargeError:
    """Returns the error of a record that is larger than a request may be."""
    return MessageTooLargeError(
        f"{what} takes up to {size} bytes and max_request_size is {limit}: raise that and the topic's "
        "max.message.bytes, or send less; nothing of it was sent",
        topic=topic,
        partition=partition,
    )


class Grouped(NamedTuple):
    """Rows by partition: partition p has the rows order[bounds[p]:bounds[p + 1]]."""

    order: Places
    bounds: npt.NDArray[np.int64]


def place(
    part: PartitionRows,
    rows: RecordRows,
    kernel: Kernel,
    partitions: int,
    available: list[int],
    sticky: StickyPartitioner,
) -> Grouped:
    """Chooses the partition of each row: the column `partition` where it isn't null, else by the key, as Java does;
    rows without either go to the sticky one. Raises `UsageError` for a partition that the topic lacks."""
    count = len(rows)
    chosen = np.empty(count, dtype=np.int32)
    without = rows.spread(chosen, partitions)
    explicit = _explicit(part, partitions)
    if explicit is not None:
        chosen = np.where(explicit >= 0, explicit, chosen).astype(np.int32)
        without = int((chosen < 0).sum())
    at = 0
    while without and at < count:
        partition = sticky.choose(available)
        at, spent = rows.stick(chosen, at, partition, sticky.left)
        sticky.spend(spent)
    order = np.empty(count, dtype=np.int32)
    bounds = np.empty(partitions + 1, dtype=np.int64)
    kernel.group(chosen, order, bounds)
    return Grouped(order, bounds)


def highest_partition(part: PartitionRows) -> int:
    """Returns the highest partition in the column `partition`; -1 for none. Raises `UsageError` for a column of another type."""
    column = _column(part)
    known = [] if column is None else [number for number in column.unique().to_pylist() if number is not None]
    return max(known, default=-1)


def _column(part: PartitionRows) -> pa.Array | None:
    """Returns the column `partition`, None where there is none or all of it is null."""
    at = part.batch.schema.get_field_index("partition")
    if at < 0:
        return None
    column = part.batch.column(at)
    if pa.types.is_null(column.type) or not part.batch.num_rows:
        return None
    if not pa.types.is_integer(column.type):
        raise UsageError(f"send_batch: column partition is {column.type}: it must be int32")
    return column


def _explicit(part: PartitionRows, partitions: int) -> npt.NDArray[np.int64] | None:
    """Returns the column `partition`, -1 where it is null."""
    column = _column(part)
    if column is None:
        return None
    values: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(valid & ((values < 0) | (values >= partitions)))
    if len(wrong):
        raise no_such_partition(part.topic, int(values[wrong[0]]), partitions)
    return values


def no_such_partition(topic: str, partition: int, partitions: int) -> UsageError:
    """Returns the error of a partition that a topic lacks."""
    return UsageError(
        f"{topic} has no partition {partition}: it has {partitions}, from 0 to {partitions - 1}"
    )
