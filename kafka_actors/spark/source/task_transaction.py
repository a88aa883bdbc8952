"""Transaction of one task: fenced, checked against the task's marker, written, and committed with the next marker.

`machines/task_markers` says why, and decides. Producers are kept for later tasks of a Python worker: one becomes the producer of the next
task's transactional id over the same connections.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from msgspec.structs import asdict

from kafka_actors.admin.groups import GroupRequests
from kafka_actors.admin.requests import CallDeadline
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import (
    KafkaActorsError,
    ProducerFencedError,
    SinkError,
    StageError,
    UndeliveredError,
)
from kafka_actors.producer.send_steps import GRACE_S
from kafka_actors.sinks.kafka import TargetProducer, is_final
from kafka_actors.spark.python_worker import IdlePool
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from .data_source_options import TRANSACTION_TIMEOUT_MS
from .machines.task_markers import (
    TaskMarker,
    TaskName,
    TaskVerdict,
    check_rows,
    splits_to_note,
    verdict_of,
)

logger = logging.getLogger(__name__)


class TaskProducer(TargetProducer):
    """Producer of one task's transaction after another. Made with any `transactional_id`: `take_over` gives it the task's."""

    def take_over(self, transactional_id: str) -> None:
        """Becomes the producer of this id. Fences every other one that has it, and ends what that left open.

        Raises `KafkaTimeoutError` after `max_block_ms`, `TransactionalIdAuthorizationFailedError`, and `InvalidTransactionTimeoutError` where
        `transaction_timeout_ms` is beyond the brokers'.
        """
        self._transact("take_over", lambda t, limit_s: t.take_over(transactional_id, limit_s))

    def stable_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of a group, once no transaction moves them. Raises `KafkaTimeoutError` after `timeout_ms` (`max_block_ms`), and
        `GroupAuthorizationFailedError`."""
        limit_s = self._block_s(timeout_ms)
        transactions = self._transactions("stable_offsets")
        return self._call(
            transactions.stable_offsets(group_id, partitions), f"the marker {group_id}", limit_s
        )

    def noted_splits(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The offset that a group has committed outside of transactions, None without one. Raises as an admin's call."""
        client = self._core.client
        deadline = CallDeadline(client)
        found = self._call(
            GroupRequests(client).committed(group_id, deadline),
            f"group {group_id}",
            deadline.seconds + GRACE_S,
        )
        return found.get(partition)

    def note_splits(self, group_id: str, partition: TopicPartition, splits: OffsetAndMetadata) -> None:
        """Commits an offset of a group outside of transactions. Raises as an admin's call."""
        client = self._core.client
        deadline = CallDeadline(client)
        committing = GroupRequests(client).commit(group_id, {partition: splits}, deadline)
        self._call(committing, f"group {group_id}", deadline.seconds + GRACE_S)


def _close(producer: TaskProducer) -> None:
    """Closes a producer without waiting: its task has failed, or ended long ago."""
    with suppress(KafkaActorsError):
        producer.close(timeout_ms=0)


producers: IdlePool[tuple[object, ...], TaskProducer] = IdlePool(_close)
"""Producers that are kept for the worker process's next task, whatever its transactional id."""


def task_producer(config: ProducerConfig) -> TaskProducer:
    """Makes and connects a producer. Called in the worker, because it resolves references to secrets. Raises `ConfigError`."""
    made = TaskProducer(config=asdict(config))
    made.__enter__()
    return made


_noted: set[tuple[str, int, str]] = set()
"""The micro-batch of which this process knows that its split options are noted."""


class Transacts(Protocol):
    """Verbs of a `TaskProducer` that a transaction needs."""

    def take_over(self, transactional_id: str) -> None: ...

    def stable_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]: ...

    def noted_splits(self, group_id: str, partition: TopicPartition) -> OffsetAndMetadata | None: ...

    def note_splits(self, group_id: str, partition: TopicPartition, splits: OffsetAndMetadata) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: ConsumerGroupMetadata
    ) -> None: ...

    def commit_transaction(self) -> None: ...

    def abort_transaction(self) -> None: ...


class TaskTransaction:
    """Transaction of one try of a task, as a context manager. `writes` says within the block whether rows are to be sent, or an earlier try
    has committed them; `commit` has to be called at its end in either case. A block that raises aborts.

    `splits` is a `splits_digest`; `timeout_s` is the producer's `transaction_timeout_ms`.
    """

    def __init__(
        self,
        producer: Transacts,
        task: TaskName,
        splits: str,
        timeout_s: float = TRANSACTION_TIMEOUT_MS / 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._task = task
        self._splits = splits
        self._timeout_s = timeout_s
        self._clock = clock
        self._began: float | None = None
        self._earlier: TaskMarker | None = None
        self.writes = False
        """Whether rows are to be sent: no earlier try has committed."""

    def __enter__(self) -> Self:
        """Raises `ConfigError` for a checkpoint that is older than what was written and for other split options."""
        task = self._task
        self._producer.take_over(task.group)
        found = self._producer.stable_offsets(task.group, [task.marker]).get(task.marker)
        verdict, self._earlier = verdict_of(task, found, self._splits)
        if verdict is TaskVerdict.WRITE:
            self._note_splits()
            self._producer.begin_transaction()
            self._began = self._clock()
            self.writes = True
        else:
            logger.info("%s was committed by an earlier try: its rows are not sent again", task)
        return self

    def _note_splits(self) -> None:
        """Has the split options of the micro-batch noted before its first row is sent. Those of a batch are planned once."""
        task = self._task
        key = (task.splits_group, task.write.batch, self._splits)
        if not task.write.streaming or key in _noted:
            return
        found = self._producer.noted_splits(task.splits_group, task.marker)
        if (splits := splits_to_note(task, found, self._splits)) is not None:
            self._producer.note_splits(task.splits_group, task.marker, splits)
        _noted.clear()
        _noted.add(key)

    def commit(self, rows: int) -> None:
        """Commits the rows, so many, with the marker; where an earlier try did, checks that they were as many. Raises `UsageError` if not,
        and as `Producer.commit_transaction`."""
        if self._earlier is not None:
            check_rows(self._task, self._earlier, rows)
            return
        marker = TaskMarker(rows, self._splits).committed(self._task.write.batch)
        self._producer.send_offsets_to_transaction(
            {self._task.marker: marker}, ConsumerGroupMetadata(self._task.group)
        )
        self._producer.commit_transaction()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self.writes:
            return
        try:
            self._producer.abort_transaction()
        except ProducerFencedError as fenced:
            if isinstance(error, KafkaActorsError):
                raise self._fenced(fenced) from error
        except KafkaActorsError as failure:
            logger.warning(
                "%s: its transaction could not be aborted, its next try does it: %s", self._task, failure
            )

    def _fenced(self, fenced: ProducerFencedError) -> ProducerFencedError:
        taken_s = 0.0 if self._began is None else self._clock() - self._began
        if taken_s >= self._timeout_s:
            why = (
                f"its transaction took {taken_s:.0f} s, longer than kafka.transaction.timeout.ms ({self._timeout_s * 1000:.0f}), and the "
                "brokers aborted it: make tasks smaller (minPartitions, maxOffsetsPerTrigger), or raise that option up to the "
                "brokers' transaction.max.timeout.ms"
            )
        else:
            why = "another try of it has begun and fenced this one, as spark.speculation makes them"
        return ProducerFencedError(
            f"{self._task}: {why}; nothing of this try is committed", request=fenced.request
        )


def ends_the_write(error: BaseException | None) -> bool:
    """Whether another try of a task would raise the same error."""
    if isinstance(error, UndeliveredError):
        return any(map(ends_the_write, error.errors.values()))
    if isinstance(error, (SinkError, StageError)):
        return ends_the_write(error.__cause__)
    return is_final(error)
