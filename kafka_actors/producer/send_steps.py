"""The calls of a producer, written once for `Producer` and `AsyncProducer`.

Sending is a generator: wherever it has to wait, for metadata or for room in memory, it yields that, and the surface waits in its
own way, in the user's thread or in the event loop. All rows of an Arrow batch are checked and given a partition before the first
one is appended, so a batch that is refused leaves nothing behind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias, TypeVar

import pyarrow as pa

from kafka_actors.base import other_clients
from kafka_actors.base.arguments import limit_of, seconds_of
from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.base.topics import check_topic
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ProducerConfig, build, resolved
from kafka_actors.errors import ConfigError, KafkaActorsError, KafkaTimeoutError, UsageError, kind_of
from kafka_actors.records.batch import MAX_MILLIS
from kafka_actors.types import TopicPartition

from .futures import BatchFuture, RecordFuture
from .producer_io import ProducerIO
from .routing import (
    StickyPartitioner,
    by_topic,
    highest_partition,
    malformed_timestamp,
    no_such_partition,
    place,
    rows_of,
    too_large,
)
from .telemetry import TRACEPARENT_BYTES, SendSpans
from .transactions import Transactions

T = TypeVar("T")
Headers: TypeAlias = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
RECORD_OVERHEAD = 31
"""Bytes of a record without key, value and headers, with the lengths of key and value; Java's estimate."""
HEADER_OVERHEAD = 10
BATCH_OVERHEAD = 61
INT64_END = 2**63


class Unknown(NamedTuple):
    """Wait until the topic's partitions are known; if this one isn't among them, until metadata was asked for again."""

    topic: str
    partition: int = 0


class Full(NamedTuple):
    """Wait until there is room in `buffer_memory`."""

    topic: str


Wait: TypeAlias = Unknown | Full
Steps: TypeAlias = Generator[Wait, None, T]


def wall_ms() -> int:
    """Returns the time of day in milliseconds, for the timestamps of records."""
    return time.time_ns() // 1_000_000  # wall clock: what Kafka's timestamps are


class Sending:
    """Chooses partitions for records and appends them to batches. `now_ms` returns the time of day in milliseconds; `largest`: the most
    bytes of a record, None for `max_request_size`."""

    def __init__(
        self,
        core: ProducerIO,
        rand: Callable[[], float],
        now_ms: Callable[[], int] = wall_ms,
        largest: int | None = None,
    ) -> None:
        self._core = core
        self._intake = core.intake
        self._rand = rand
        self._now_ms = now_ms
        self._largest = core.config.max_request_size if largest is None else largest
        self._found: tuple[ClusterSnapshot | None, dict[str, tuple[int, list[int]]]] = None, {}
        """The metadata that was looked at last, and what was found there by topic: in one attribute, since any thread may change it."""
        self._sticky: dict[str, StickyPartitioner] = {}
        self._spans = SendSpans(core.config.client_id, lambda: core.client.snapshot)

    # ------------------------------------------------------------ partitions

    def _partitions(self, topic: str) -> Steps[tuple[int, list[int]]]:
        """Returns the number of the topic's partitions, and those that have a leader (all if none has)."""
        while (known := self._known(topic)) is None:
            yield Unknown(topic)
        return known

    def _with(self, topic: str, partition: int) -> Steps[tuple[int, list[int]]]:
        """Returns the same after asking for metadata again, for a partition that the topic may have got a moment ago. Raises
        `UsageError`."""
        yield Unknown(topic, partition)
        count, available = yield from self._partitions(topic)
        if partition >= count:
            raise no_such_partition(topic, partition, count)
        return count, available

    def _known(self, topic: str) -> tuple[int, list[int]] | None:
        snapshot = self._core.client.snapshot
        of, topics = self._found
        if of is not snapshot:
            topics = {}
            self._found = snapshot, topics
        known = topics.get(topic)
        if known is None:
            found = snapshot.topics.get(topic)
            if found is None or not found.partitions or not self._core.client.tracks(topic):
                return None
            available = sorted(p.partition for p in found.partitions.values() if p.leader >= 0)
            known = max(found.partitions) + 1, available or sorted(found.partitions)
            topics[topic] = known
        return known

    def _sticky_of(self, topic: str) -> StickyPartitioner:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartitioner(self._intake.limit, self._rand)
        return sticky

    def partitions(self, topic: str) -> Steps[set[int]]:
        """Returns the partition ids of a topic."""
        count, _ = yield from self._partitions(check_topic(topic))
        return set(range(count))

    # ------------------------------------------------------------ many records

    def batch(self, data: pa.RecordBatch | pa.Table, topic: str | None) -> Steps[BatchFuture]:
        """Appends all rows, and returns their future. An error of any row is raised before any of its Arrow batch is taken."""
        if topic is not None:
            check_topic(topic)
        if isinstance(data, pa.Table):
            batches = data.to_batches()
        elif isinstance(data, pa.RecordBatch):
            batches = [data]
        else:
            raise UsageError(f"send_batch takes a pyarrow.RecordBatch or Table, not {kind_of(data)}")
        future = BatchFuture(data.num_rows)
        base = 0
        try:
            for batch in batches:
                yield from self._arrow(batch, topic, future, base)
                base += batch.num_rows
        finally:
            future.complete()
        return future

    def _arrow(self, batch: pa.RecordBatch, topic: str | None, future: BatchFuture, base: int) -> Steps[None]:
        ready = []
        kernel, now_ms = self._intake.kernel, self._now_ms()
        for part in by_topic(batch, topic):
            part = self._spans.batch(part, future)
            rows = rows_of(part, kernel, now_ms, self._largest)
            count, available = yield from self._partitions(part.topic)
            if (highest := highest_partition(part)) >= count:
                count, available = yield from self._with(part.topic, highest)
            ready.append(
                (part, rows, place(part, rows, kernel, count, available, self._sticky_of(part.topic)))
            )
        for part, rows, grouped in ready:
            per_row = max(1, part.batch.nbytes // max(1, len(rows))) + RECORD_OVERHEAD
            for partition in range(len(grouped.bounds) - 1):
                lo, hi = int(grouped.bounds[partition]), int(grouped.bounds[partition + 1])
                tp = TopicPartition(part.topic, partition)
                while lo < hi:
                    while self._intake.full:
                        yield Full(part.topic)
                    at, result, first = self._intake.append(
                        tp, rows, grouped.order, lo, hi, per_row * (hi - lo)
                    )
                    if at > lo:
                        numbers = grouped.order[lo:at]
                        future.add(
                            result, first, numbers if part.numbers is None else part.numbers[numbers], base
                        )
                    lo = at

    # ------------------------------------------------------------ one record

    def record(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Steps[RecordFuture]:
        """Appends one record."""
        known = self._known(topic) if isinstance(topic, str) else None
        if known is None:
            known = yield from self._partitions(check_topic(topic))
        count, available = known
        value, key = _bytes(value, "value"), _bytes(key, "key")
        packed = None if not headers else _headers(headers)
        size = BATCH_OVERHEAD + RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if packed:
            size += sum(HEADER_OVERHEAD + len(k) + len(v or b"") for k, v in packed)
        if self._spans.on:
            size += HEADER_OVERHEAD + TRACEPARENT_BYTES
        sticky: StickyPartitioner | None = None
        if timestamp_ms is not None:
            timestamp_ms = _int(timestamp_ms, "timestamp_ms")
            # Kafka's ProducerRecord refuses it, too; -1 stands for none in the log, where this producer always has one.
            if timestamp_ms < 0:
                raise UsageError(
                    f"send: timestamp_ms is {timestamp_ms}: it must not be negative; without it, it is the present time"
                )
            if timestamp_ms > MAX_MILLIS:
                raise malformed_timestamp("send: timestamp_ms", timestamp_ms)
        if partition is not None:
            partition = _int(partition, "partition")
            if partition < 0:
                raise no_such_partition(topic, partition, count)
            if partition >= count:
                count, available = yield from self._with(topic, partition)
        elif key is not None:
            partition = self._intake.kernel.murmur2(key) % count
        else:
            sticky = self._sticky_of(topic)
            partition = sticky.choose(available)
        if size > self._largest:
            raise too_large(topic, partition, "the record", size, self._largest)
        while self._intake.full:
            yield Full(topic)
        stamp = self._now_ms() if timestamp_ms is None else timestamp_ms
        tp = TopicPartition(topic, partition)
        if self._spans.on:
            span, packed = self._spans.record(tp, packed, tombstone=value is None)
            result, index = self._intake.append_one(tp, key, value, packed, stamp)
            self._spans.ends(span, result, index)
        else:
            result, index = self._intake.append_one(tp, key, value, packed, stamp)
        if sticky is not None:
            sticky.spend(size)
        return RecordFuture(result, index, stamp)


def _int(value: object, name: str) -> int:
    """Returns an int of any class (numpy's, for one) as Python's. Other values would fail later, with others' records in their
    batch."""
    if type(value) is int:
        number = value
    elif isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise UsageError(f"send: {name} is {value!r}, {kind_of(value)}: it must be an int")
    else:
        number = index(value)
    if not -INT64_END <= number < INT64_END:
        raise UsageError(f"send: {name} is {number}: it must be an int of 64 bits")
    return number


def _bytes(value: object, name: str) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return _utf8(value, name)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise UsageError(f"send: {name} is {kind_of(value)}: it must be bytes, a str or None")


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"send: {name} can't be sent as UTF-8: its character {error.start} is {text[error.start]!a}, half of a surrogate pair; "
            "give bytes"
        ) from None


def _headers(headers: Headers) -> list[tuple[bytes, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    packed = []
    for pair in pairs:
        try:
            name, value = pair
        except (TypeError, ValueError):
            raise UsageError(f"send: a header is {pair!r}: it must be (name, value)") from None
        if not isinstance(name, str):
            raise UsageError(f"send: a header's name is {kind_of(name)}: it must be a str")
        packed.append((_utf8(name, f"the header's name {name!a}"), _bytes(value, f"header {name!r}")))
    return packed


class BaseProducer(ForkGuard):
    """The parts of a producer's surface that never wait, and the texts of both surfaces."""

    _name = "Producer"
    _missing_s: float | None = None
    """See `ProducerIO`."""
    _largest: int | None = None
    """See `Sending`."""

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__()
        self.config = resolved(build(ProducerConfig, config, **options))
        self._ready = False
        self._closed = False
        self._make()

    def _make(self) -> None:
        self._core = ProducerIO(self.config, missing_s=self._missing_s)
        self._sending = Sending(self._core, random.random, largest=self._largest)

    if not TYPE_CHECKING:
        __getattr__ = other_clients.says_ours(other_clients.PRODUCER)

    def __repr__(self) -> str:
        return f"<{self._name} to {','.join(self.config.bootstrap_servers)}>"

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise self._is_closed()

    def _is_closed(self) -> UsageError:
        return UsageError(f"this {self._name} is closed")

    def _raise_unseen(self) -> None:
        error = self._core.unseen.take()
        if error is not None:
            raise error

    def _lost(self, error: KafkaActorsError) -> None:
        """Has the transaction aborted whose record could not be taken, so that nobody commits the rest who goes on after the error: as
        `KafkaProducer.doSend` does with each `ApiException` (KAFKA-9279). What Java throws past its transaction, a wrong argument or state,
        is a `UsageError` or `ConfigError` here. Producers of sinks (`_missing_s`) go on: refused rows go to their dead letters."""
        transactions = self._core.transactions
        if (
            transactions is not None
            and self._missing_s is None
            and not isinstance(error, (UsageError, ConfigError))
        ):
            transactions.lost(error)

    def _transactions(self, verb: str) -> Transactions:
        """Returns the producer's transactions. Raises `UsageError` where it has none."""
        if self._core.transactions is None:
            raise UsageError(f"{verb}: this {self._name} has no transactions: give it a transactional_id")
        return self._core.transactions

    def _raise_failed_transaction(self) -> None:
        """Raises the error with which the transaction has to be aborted, if there is one."""
        if self._core.transactions is not None:
            self._core.transactions.raise_failure()

    def _block_s(self, timeout_ms: float | None) -> float:
        """Returns the seconds that a transaction's verb waits: `max_block_ms` unless told otherwise."""
        limit_s = limit_of(timeout_ms)
        return seconds_of(self.config.max_block_ms) if limit_s is None else limit_s

    def _no_room(self, topic: str) -> KafkaTimeoutError:
        config = self.config
        return KafkaTimeoutError(
            f"{topic}: no room in buffer_memory ({config.buffer_memory} bytes) within max_block_ms "
            f"({config.max_block_ms}): the brokers take less than is sent, or none answers"
        )


GRACE_S = 5.0
"""Seconds for closing connections, which takes a moment as a rule."""
NOT_CLOSED = "the producer's connections could not be closed in %g s: they are given up"
BESIDE = "beside the error being raised: %s"


def not_acknowledged(batches: int) -> KafkaTimeoutError:
    """Returns the error of a `flush` whose time is over."""
    return KafkaTimeoutError(f"flush: {batches} batches are not acknowledged yet")


def closed_before() -> KafkaTimeoutError:
    """Returns the error of records that `close` gave up."""
    return KafkaTimeoutError("the producer was closed before it was acknowledged; it may be written")
