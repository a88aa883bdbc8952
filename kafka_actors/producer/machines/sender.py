"""`Sender`: which batches go into which requests, and what their answers mean.

Theory of operation. Arrives: closed batches (`add`), the producer id (`identify`), answers to requests (`answered`, `failed`), and time
(`poll`). Each batch waits in the `PartitionQueue` of its partition, which keeps order and sequences; the sender looks at those with any.

Decided:

- `poll`: the requests to send now. Each goes to one broker and has at most one batch of a partition; as many as
  `max_in_flight_requests_per_connection` are on their way to a broker. Partitions that were served go to the end of the line, so
  that a full request doesn't always leave out the same ones. Obstacles of others come out as actions: a leader that isn't known, a
  broker that isn't connected, a producer id that is missing. Batches older than `delivery_timeout` fail, whatever was tried
  (KIP-91).
- The outcome of each batch, by the action of its error (`action_for`): written, sent again after a backoff, split in halves, or
  failed. A batch that was possibly written is *doubtful*: an answer got lost, or an error leaves it open. It keeps its sequence, so
  that the broker can tell a repetition, and an error says that its records may be in the log.

Times: a batch has one deadline from its first record on, whatever is tried meanwhile; a retry has a backoff by the failures of its
partition in a row, and batches behind it wait with it, since their sequences follow its own.

A request without an answer counts as in flight until `failed` says otherwise. Java's `Sender` and `RecordAccumulator` are the
model; KIP-98 and KIP-360 are the sources of sequences and epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Never

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.base.machine import Ready
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import (
    ConcurrentTransactionsError,
    KafkaActorsError,
    KafkaError,
    NetworkError,
    OutOfOrderSequenceNumberError,
    error_for_code,
)
from kafka_actors.types import TopicPartition

from .batch import BEHIND_AN_APPEND, ProduceErrorAction, ProducerBatch, action_for, too_late, with_advice
from .partition_queue import Leader, PartitionQueue
from .produce_requests import RECORDS_OVERHEAD, ProduceAnswer, ProduceOrder
from .transaction_requests import CONCURRENT_S


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """Options of a sender; times in seconds, sizes in bytes."""

    idempotent: bool
    window: int
    max_request_bytes: int
    delivery_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    transactional: bool = False

    @classmethod
    def of(cls, config: ProducerConfig) -> SenderOptions:
        """Returns the options of a producer."""
        return cls(
            idempotent=config.enable_idempotence,
            window=config.max_in_flight_requests_per_connection,
            max_request_bytes=config.max_request_size,
            delivery_timeout=config.delivery_timeout_ms / 1000,
            retry_backoff=config.retry_backoff_ms / 1000,
            retry_backoff_max=config.retry_backoff_max_ms / 1000,
            transactional=config.transactional_id is not None,
        )


@dataclass(frozen=True, slots=True)
class SettledBatch:
    """The outcome of a batch: `error` None is success; `base_offset` is -1 where the broker no longer knew it."""

    batch: ProducerBatch
    base_offset: int = -1
    timestamp_ms: int = -1
    error: KafkaActorsError | None = None


class ConnectNode(NamedTuple):
    """Open a connection to this node: batches wait for it."""

    node: int


class RequestProducerId(NamedTuple):
    """Ask for a producer id, for `identify`."""


SendAction = SettledBatch | ProduceOrder | ConnectNode | RefreshMetadata | RequestProducerId
"""Settle a batch whose time is over; send a request; or one of the others."""


@dataclass(slots=True)
class _Pass:
    """Actions collected in one poll."""

    orders: list[ProduceOrder] = field(default_factory=list)
    connect: set[int] = field(default_factory=set)
    wants_metadata: bool = False
    wants_id: bool = False


@dataclass(slots=True)
class AnswerOutcome:
    """Consequences of an answer."""

    settled: list[SettledBatch] = field(default_factory=list)
    wants_metadata: bool = False


Split = Callable[[ProducerBatch], Sequence[ProducerBatch]]


class Sender:
    """The queues of all partitions of a producer.

    `split` makes smaller batches of one that a broker found too large; `rand` returns 0..1; `leader` a partition's leader, None or
    -1 while there is none; `topic_id` a topic's id, None where brokers give none; `connected` whether there is a connection to a node;
    `obstacle` why nothing can be sent to a partition now; `admits` whether it is in the transaction (None: there are none).

    Answers return the batches that they settle, because their futures are settled in the same turn; requests, other actions and
    batches whose time is over come out of `poll`.
    """

    def __init__(
        self,
        options: SenderOptions,
        split: Split,
        rand: Callable[[], float],
        *,
        leader: Callable[[TopicPartition], int | None],
        topic_id: Callable[[str], bytes | None],
        connected: Callable[[int], bool],
        obstacle: Callable[[TopicPartition], str] = lambda _: "",
        admits: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        self._options = options
        self._split = split
        self._rand = rand
        self._leader = leader
        self._topic_id = topic_id
        self._connected = connected
        self._obstacle = obstacle
        self._admits = admits
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}  # those with something unsettled
        self._in_flight: Counter[int] = Counter()
        self._identity: tuple[int, int] | None = None

    # ------------------------------------------------------------ batches

    def add(self, batch: ProducerBatch) -> None:
        """Queues a closed batch behind those of its partition."""
        queue = self._queues.get(batch.partition)
        if queue is None:
            o = self._options
            queue = PartitionQueue(
                batch.partition, idempotent=o.idempotent, window=o.window, transactional=o.transactional
            )
            self._queues[batch.partition] = queue
        queue.waiting.append(batch)
        self._busy[batch.partition] = queue

    def identify(self, producer_id: int, epoch: int) -> None:
        """Takes over a producer id and its epoch, for queues that have none. The others keep theirs: their sequences are counted
        under it."""
        self._identity = producer_id, epoch

    def renew(self, producer_id: int, epoch: int) -> None:
        """Takes over an id and epoch for all queues, which are empty: sequences begin at 0."""
        assert not self._busy
        self._queues.clear()
        self.identify(producer_id, epoch)

    # ------------------------------------------------------------ requests

    def poll(self, now: float) -> Ready[SendAction, Never]:
        """Fails the batches that were not acknowledged within `delivery_timeout`, then takes those that may be sent now."""
        step = _Pass()
        expired = self._expire(now)
        while self._pass(step, now):
            pass
        actions: list[SendAction] = [*expired, *step.orders, *map(ConnectNode, step.connect)]
        if step.wants_metadata:
            actions.append(RefreshMetadata())
        if step.wants_id:
            actions.append(RequestProducerId())
        return Ready(tuple(actions), next_wake=self._next_wake(now))

    def _pass(self, step: _Pass, now: float) -> bool:
        """Makes at most one more request to each node."""
        building: dict[int, ProduceOrder] = {}
        served = []
        for partition, queue in self._busy.items():
            if not queue.waiting and len(queue.issued) == queue.in_flight:
                continue  # all batches are on the wire
            node = self._leader(partition)
            if node is None or node < 0:
                step.wants_metadata = True
                continue
            if self._full(node, building) or not (self._admits is None or self._admits(partition)):
                continue
            if not self._connected(node):
                step.connect.add(node)
                continue
            leader = Leader(node, self._topic_id(partition.topic))
            if (batch := self._next(queue, now, leader, step)) is not None:
                order = building.get(node)
                if order is None:
                    order = building[node] = ProduceOrder(node)
                    self._in_flight[node] += 1
                elif order.size + batch.size > self._options.max_request_bytes:
                    continue
                order.batches.append(batch)
                order.size += batch.size + RECORDS_OVERHEAD
                order.topic_ids[partition.topic] = leader.topic_id
                queue.sent(batch, leader)
                served.append(partition)
        for partition in served:  # behind the others the next time
            self._busy[partition] = self._busy.pop(partition)
        step.orders.extend(building.values())
        return bool(building)

    def _full(self, node: int, building: Mapping[int, ProduceOrder]) -> bool:
        """Returns whether no request to this node may be begun; one that is being made still takes batches."""
        return node not in building and self._in_flight[node] >= self._options.window

    def _next(self, queue: PartitionQueue, now: float, leader: Leader, step: _Pass) -> ProducerBatch | None:
        """Returns the batch of a queue that may go out now. A queue without a producer id gets the present one, unless it has
        used up all epochs of that: then another id is asked for, once for all queues."""
        batch = queue.sendable(now, leader)
        if batch is None and queue.needs_id:
            if self._identity is None:
                step.wants_id = True
                return None
            if self._identity[0] != queue.exhausted_id:
                queue.identify(*self._identity)
                return queue.sendable(now, leader)
            self._identity = None
            step.wants_id = True
        return batch

    # ------------------------------------------------------------ answers

    def answered(
        self, order: ProduceOrder, answers: Mapping[TopicPartition, ProduceAnswer], now: float
    ) -> AnswerOutcome:
        """Takes the response to a request. A partition that it doesn't mention is sent again."""
        self._in_flight[order.node] -= 1
        outcome = AnswerOutcome()
        for batch in order.batches:
            queue = self._queues[batch.partition]
            if queue.answered(batch):
                self._apply(queue, batch, answers.get(batch.partition, _MISSING), order, now, outcome)
        self._forget_empty(batch.partition for batch in order.batches)
        return outcome

    def failed(
        self, order: ProduceOrder, error: KafkaActorsError, now: float, *, maybe_written: bool
    ) -> AnswerOutcome:
        """Takes the failure of a request without an answer; `maybe_written` False says that it was certainly not sent.

        Metadata is wanted in any case: the broker may be down, and its partitions may be led by another one by now.
        """
        self._in_flight[order.node] -= 1
        outcome = AnswerOutcome(wants_metadata=True)
        for batch in order.batches:
            queue = self._queues[batch.partition]
            if not queue.answered(batch):
                continue
            batch.last_error = error
            batch.doubtful = batch.doubtful or maybe_written
            batch.unanswered = batch.unanswered or maybe_written
            if error.retriable or maybe_written:  # an answer that can't be read is as good as none
                queue.again(batch, now + self._pause(queue), doubtful=maybe_written)
            else:
                queue.fail(batch)
                outcome.settled.append(SettledBatch(batch, error=with_advice(error, batch)))
        self._forget_empty(batch.partition for batch in order.batches)
        return outcome

    def _apply(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        answer: ProduceAnswer,
        order: ProduceOrder,
        now: float,
        outcome: AnswerOutcome,
    ) -> None:
        """Applies the answer for one batch."""
        topic, partition = batch.partition
        error = error_for_code(
            answer.error_code,
            answer.message,
            request="Produce",
            topic=topic,
            partition=partition,
            broker=order.node,
        )
        action = action_for(error, records=batch.records, idempotent=self._options.idempotent)
        batch.last_error = error or batch.last_error
        outcome.wants_metadata = outcome.wants_metadata or (error is not None and error.invalid_metadata)
        if action is ProduceErrorAction.WRITTEN or (action is ProduceErrorAction.GAP and batch.followed):
            before = queue.written(batch, now, Leader(order.node, order.topic_ids[topic]))
            outcome.settled += map(SettledBatch, before)
            outcome.settled.append(SettledBatch(batch, answer.base_offset, answer.timestamp_ms))
        elif action is ProduceErrorAction.RETRY:
            # Also NOT_LEADER_OR_FOLLOWER may mean that it was appended and then waited for replicas in vain.
            concurrent = isinstance(error, ConcurrentTransactionsError)
            pause_s = CONCURRENT_S if concurrent else self._pause(queue)
            queue.again(batch, now + pause_s, doubtful=True, appended=isinstance(error, BEHIND_AN_APPEND))
        elif action is ProduceErrorAction.GAP and self._ends(queue, batch, error):
            queue.refused(batch)
            outcome.settled.append(SettledBatch(batch, error=with_advice(error, batch)))
        elif action is ProduceErrorAction.GAP:
            lost = not isinstance(error, OutOfOrderSequenceNumberError)
            queue.gap(batch, now + self._pause(queue), lost_state=lost)
        elif action is ProduceErrorAction.SPLIT:
            queue.replaced(batch, self._split(batch))
        else:
            queue.refused(batch)
            outcome.settled.append(SettledBatch(batch, error=with_advice(error, batch)))

    def _ends(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError | None) -> bool:
        """Whether a gap ends a batch. In front of the oldest one it does where that is a part of one that may be in the log as a
        whole: the broker doesn't recognise the part, and under a new epoch its records could be there twice. In a transaction,
        which has one epoch, each gap does that sending again in order doesn't close."""
        if self._options.transactional:
            return batch is queue.oldest() or not isinstance(error, OutOfOrderSequenceNumberError)
        return batch.maybe_whole and batch is queue.oldest()

    def _pause(self, queue: PartitionQueue) -> float:
        o = self._options
        return exponential_backoff(queue.failures + 1, o.retry_backoff, o.retry_backoff_max, self._rand)

    def _forget_empty(self, partitions: Iterable[TopicPartition]) -> None:
        """Leaves queues alone that are empty; without sequences they are dropped."""
        for partition in partitions:
            queue = self._busy.get(partition)
            if queue is not None and queue.empty:
                del self._busy[partition]
                if not self._options.idempotent:
                    del self._queues[partition]

    # ------------------------------------------------------------ time

    def _expire(self, now: float) -> list[SettledBatch]:
        """Fails the batches that are too old, counted from their first record, the oldest of a partition first. One on the wire
        may still be written: its error says so, and its answer is ignored when it comes."""
        limit_s = self._options.delivery_timeout
        settled = []
        for partition, queue in list(self._busy.items()):
            while (batch := queue.oldest()) is not None and batch.created <= now - limit_s:
                error = None if batch.followed else too_late(batch, limit_s, self._obstacle(partition))
                settled.append(SettledBatch(batch, error=error))
                queue.fail(batch)
            if queue.empty:
                self._forget_empty([partition])
        return settled

    def give_up(
        self, error: KafkaActorsError, partitions: Iterable[TopicPartition] | None = None
    ) -> list[SettledBatch]:
        """Fails all batches that are not settled, of these partitions or of all."""
        chosen = [p for p in (self._busy if partitions is None else partitions) if p in self._busy]
        settled, aborted = [], self._options.transactional
        for partition in chosen:
            queue = self._busy[partition]
            while (batch := queue.oldest()) is not None:
                settled.append(SettledBatch(batch, error=error if aborted else with_advice(error, batch)))
                queue.fail(batch)
        self._forget_empty(chosen)
        return settled

    def _next_wake(self, now: float) -> float | None:
        """Returns when a batch gets too old or a backoff ends. A leader, a connection, an id or an answer comes with a call."""
        due = []
        for queue in self._busy.values():
            if (oldest := queue.oldest()) is not None:
                due.append(oldest.created + self._options.delivery_timeout)
                if queue.not_before > now:
                    due.append(queue.not_before)
        return min(due, default=None)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Partitions with batches that are not settled."""
        return list(self._busy)


_MISSING = ProduceAnswer(error_code=NetworkError.code, message="the response does not mention the partition")
