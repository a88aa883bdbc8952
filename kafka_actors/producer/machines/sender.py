"""`Sender`: which batches go into which requests, and what their answers mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Never

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.base.machine import Ready
from kafka_actors.errors import (
    DeliveryTimeoutError,
    KafkaActorsError,
    KafkaError,
    MessageTooLargeError,
    NetworkError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    error_for_code,
)
from kafka_actors.protocol import ProduceRequest, ProduceResponse
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.types import TopicPartition

from .batch import ProducerBatch
from .error_actions import ProduceErrorAction, verdict
from .partition_queue import PartitionQueue

RECORDS_OVERHEAD = 64
"""About what a partition takes in a request besides its records."""


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """What a sender heeds; times in seconds, sizes in bytes."""

    idempotent: bool
    window: int
    max_request_bytes: int
    delivery_timeout: float
    retry_backoff: float
    retry_backoff_max: float


@dataclass(slots=True)
class ProduceOrder:
    """One request: at most one batch of each partition."""

    node: int
    batches: list[ProducerBatch] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """What a response says about one partition."""

    error_code: int = 0
    base_offset: int = -1
    timestamp_ms: int = -1
    message: str | None = None


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


class LearnLeaders(NamedTuple):
    """Ask for newer metadata: a partition has no leader."""


class RequestProducerId(NamedTuple):
    """Ask for a producer id, for `identify`."""


SendAction = SettledBatch | ProduceOrder | ConnectNode | LearnLeaders | RequestProducerId
"""Settle a batch that was given up because its time is over; send a request; or one of the others."""


@dataclass(slots=True)
class _Pass:
    """What has come together in one poll."""

    orders: list[ProduceOrder] = field(default_factory=list)
    connect: set[int] = field(default_factory=set)
    wants_metadata: bool = False
    wants_id: bool = False


@dataclass(slots=True)
class AnswerOutcome:
    """What an answer led to."""

    settled: list[SettledBatch] = field(default_factory=list)
    wants_metadata: bool = False


Split = Callable[[ProducerBatch], Sequence[ProducerBatch]]


class Sender:
    """Decides which batches of a producer go into which requests, and what becomes of them.

    split: makes smaller batches of one that a broker found too large. rand: 0..1. leader: a partition's leader, None or -1
    while there is none. connected: whether there is a connection to a node.

    Answers return what they settle, because their callers' futures are settled in the same turn; whatever has to be sent, learned
    or given up in time comes out of `poll`.
    """

    def __init__(
        self,
        options: SenderOptions,
        split: Split,
        rand: Callable[[], float],
        *,
        leader: Callable[[TopicPartition], int | None],
        connected: Callable[[int], bool],
    ) -> None:
        self._options = options
        self._split = split
        self._rand = rand
        self._leader = leader
        self._connected = connected
        self._lanes: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}  # those with something unsettled
        self._in_flight: Counter[int] = Counter()
        self._identity: tuple[int, int] | None = None

    # ------------------------------------------------------------ in

    def add(self, batch: ProducerBatch) -> None:
        """A closed batch, behind those of its partition that came before."""
        lane = self._lanes.get(batch.partition)
        if lane is None:
            o = self._options
            lane = PartitionQueue(batch.partition, idempotent=o.idempotent, window=o.window)
            self._lanes[batch.partition] = lane
        lane.waiting.append(batch)
        self._busy[batch.partition] = lane

    def identify(self, producer_id: int, epoch: int) -> None:
        """The producer id that was asked for."""
        self._identity = producer_id, epoch

    # ------------------------------------------------------------ out

    def poll(self, now: float) -> Ready[SendAction, Never]:
        """Gives up what was not acknowledged in its time, then takes what may be sent now."""
        out = _Pass()
        expired = self._expire(now)
        while self._pass(out, now):
            pass
        actions: list[SendAction] = [*expired, *out.orders, *map(ConnectNode, out.connect)]
        if out.wants_metadata:
            actions.append(LearnLeaders())
        if out.wants_id:
            actions.append(RequestProducerId())
        return Ready(tuple(actions), next_wake=self._next_wake(now))

    def _pass(self, out: _Pass, now: float) -> bool:
        """At most one more request to each node."""
        building: dict[int, ProduceOrder] = {}
        served = []
        for partition, lane in self._busy.items():
            if not lane.waiting and len(lane.issued) == lane.in_flight:
                continue  # all that there is is on the wire
            node = self._leader(partition)
            if node is None or node < 0:
                out.wants_metadata = True
            elif self._full(node, building):
                continue
            elif not self._connected(node):
                out.connect.add(node)
            elif (batch := self._next(lane, now, node, out)) is not None:
                order = building.get(node)
                if order is None:
                    order = building[node] = ProduceOrder(node)
                    self._in_flight[node] += 1
                elif order.size + batch.size > self._options.max_request_bytes:
                    continue
                order.batches.append(batch)
                order.size += batch.size + RECORDS_OVERHEAD
                lane.sent(batch, node)
                served.append(partition)
        for partition in served:  # the others come first the next time
            self._busy[partition] = self._busy.pop(partition)
        out.orders.extend(building.values())
        return bool(building)

    def _full(self, node: int, building: Mapping[int, ProduceOrder]) -> bool:
        return node not in building and self._in_flight[node] >= self._options.window

    def _next(self, lane: PartitionQueue, now: float, node: int, out: _Pass) -> ProducerBatch | None:
        batch = lane.sendable(now, node)
        if batch is None and lane.needs_id:
            if self._identity is None:
                out.wants_id = True
                return None
            if self._identity[0] != lane.exhausted_id:
                lane.identify(*self._identity)
                return lane.sendable(now, node)
            self._identity = None
            out.wants_id = True
        return batch

    # ------------------------------------------------------------ answers

    def answered(
        self, order: ProduceOrder, answers: Mapping[TopicPartition, ProduceAnswer], now: float
    ) -> AnswerOutcome:
        """The response to a request. A partition that it doesn't mention is sent again."""
        self._in_flight[order.node] -= 1
        out = AnswerOutcome()
        for batch in order.batches:
            lane = self._lanes[batch.partition]
            if lane.answered(batch):
                self._judge(lane, batch, answers.get(batch.partition, _MISSING), order.node, now, out)
        self._rest(batch.partition for batch in order.batches)
        return out

    def failed(
        self, order: ProduceOrder, error: KafkaActorsError, now: float, *, maybe_written: bool
    ) -> AnswerOutcome:
        """The request got no answer; `maybe_written` False says that it certainly never left."""
        self._in_flight[order.node] -= 1
        out = AnswerOutcome(wants_metadata=True)
        for batch in order.batches:
            lane = self._lanes[batch.partition]
            if not lane.answered(batch):
                continue
            batch.last_error = error
            batch.doubtful = batch.doubtful or maybe_written
            if error.retriable:
                lane.again(batch, now + self._pause(lane), doubtful=maybe_written)
            else:
                lane.given_up(batch)
                out.settled.append(SettledBatch(batch, error=error))
        self._rest(batch.partition for batch in order.batches)
        return out

    def _judge(
        self,
        lane: PartitionQueue,
        batch: ProducerBatch,
        answer: ProduceAnswer,
        node: int,
        now: float,
        out: AnswerOutcome,
    ) -> None:
        topic, partition = batch.partition
        error = error_for_code(
            answer.error_code,
            answer.message,
            request="Produce",
            topic=topic,
            partition=partition,
            broker=node,
        )
        decided = verdict(error, records=batch.records, idempotent=self._options.idempotent)
        batch.last_error = error or batch.last_error
        out.wants_metadata = out.wants_metadata or (error is not None and error.invalid_metadata)
        if decided is ProduceErrorAction.WRITTEN:
            lane.written(batch, now, node)
            out.settled.append(SettledBatch(batch, answer.base_offset, answer.timestamp_ms))
        elif decided is ProduceErrorAction.RETRY:
            # Also NOT_LEADER_OR_FOLLOWER may mean that it was appended and then waited for replicas in vain.
            lane.again(batch, now + self._pause(lane), doubtful=True)
        elif decided is ProduceErrorAction.GAP and batch.maybe_whole and batch is lane.oldest():
            lane.refused(batch)
            out.settled.append(SettledBatch(batch, error=_advised(error, batch)))
        elif decided is ProduceErrorAction.GAP:
            lost = not isinstance(error, OutOfOrderSequenceNumberError)
            lane.gap(batch, now + self._pause(lane), lost_state=lost)
        elif decided is ProduceErrorAction.SPLIT:
            lane.replaced(batch, self._split(batch))
        else:
            lane.refused(batch)
            out.settled.append(SettledBatch(batch, error=_advised(error, batch)))

    def _pause(self, lane: PartitionQueue) -> float:
        o = self._options
        return exponential_backoff(lane.failures + 1, o.retry_backoff, o.retry_backoff_max, self._rand)

    def _rest(self, partitions: Iterable[TopicPartition]) -> None:
        """A lane with nothing to do is left alone; without sequences it needs no memory either."""
        for partition in partitions:
            lane = self._busy.get(partition)
            if lane is not None and lane.empty:
                del self._busy[partition]
                if not self._options.idempotent:
                    del self._lanes[partition]

    # ------------------------------------------------------------ time

    def _expire(self, now: float) -> list[SettledBatch]:
        limit = now - self._options.delivery_timeout
        settled = []
        for partition, lane in list(self._busy.items()):
            while (batch := lane.oldest()) is not None and batch.created <= limit:
                settled.append(SettledBatch(batch, error=self._too_late(batch)))
                lane.given_up(batch)
            if lane.empty:
                self._rest([partition])
        return settled

    def _too_late(self, batch: ProducerBatch) -> DeliveryTimeoutError:
        topic, partition = batch.partition
        because = None if batch.last_error is None else str(batch.last_error)
        return DeliveryTimeoutError(
            topic,
            partition,
            batch.records,
            round(self._options.delivery_timeout * 1000),
            batch.maybe_written or batch.on_wire,
            because,
        )

    def give_up(
        self, error: KafkaActorsError, partitions: Iterable[TopicPartition] | None = None
    ) -> list[SettledBatch]:
        """Gives up all that is not settled, of these partitions or of all."""
        chosen = [p for p in (self._busy if partitions is None else partitions) if p in self._busy]
        settled = []
        for partition in chosen:
            lane = self._busy[partition]
            while (batch := lane.oldest()) is not None:
                settled.append(SettledBatch(batch, error=error))
                lane.given_up(batch)
        self._rest(chosen)
        return settled

    def _next_wake(self, now: float) -> float | None:
        due = []
        for lane in self._busy.values():
            if (oldest := lane.oldest()) is not None:
                due.append(oldest.created + self._options.delivery_timeout)
                if lane.not_before > now:
                    due.append(lane.not_before)
        return min(due, default=None)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with something not settled."""
        return list(self._busy)


_MISSING = ProduceAnswer(error_code=NetworkError.code, message="the response does not mention the partition")


def _advised(error: KafkaError | None, batch: ProducerBatch) -> KafkaError | None:
    """The error of a batch that is given up, with what to do, and whether its records may be in the log."""
    if error is None:
        return None
    if isinstance(error, (MessageTooLargeError, RecordListTooLargeError)):
        error.message = "the record is larger than the topic's max.message.bytes: raise that, or send less"
    if batch.maybe_written:
        why = f"{error.message}; " if error.message else ""
        error.message = f"{why}an earlier attempt had no clear outcome: the records may have been written"
    return error


def produce_request(order: ProduceOrder, *, acks: int, timeout_ms: int) -> ProduceRequest:
    """Returns the request that carries the batches of an order, each sealed with its producer id, epoch and sequence."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in order.batches:
        topic, partition = batch.partition
        records = batch.content.seal(batch.producer_id, batch.producer_epoch, batch.sequence)
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=records))
    data = [TopicProduceData(name=name, partition_data=data) for name, data in topics.items()]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data)


def read_answers(response: ProduceResponse) -> dict[TopicPartition, ProduceAnswer]:
    """Returns what a response says about each partition."""
    answers = {}
    for topic in response.responses:
        for p in topic.partition_responses:
            message = p.error_message
            if p.record_errors:
                said = [e.batch_index_error_message for e in p.record_errors if e.batch_index_error_message]
                message = "; ".join([message or "", *said]).strip("; ")
            answers[TopicPartition(topic.name, p.index)] = ProduceAnswer(
                p.error_code, p.base_offset, p.log_append_time_ms, message
            )
    return answers
