"""`ProducerIO`: the part of a producer that lives in an event loop, with connections, requests and answers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.base.machine import earliest
from kafka_actors.base.tasks import SILENT_S, warned_when_slow
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    ConnectionFailedError,
    EncodeError,
    KafkaActorsError,
    NodeNotReadyError,
    UnsupportedVersionError,
    UsageError,
    error_for_code,
)
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import ApiVersionsRequest, InitProducerIdRequest
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.types import TopicPartition

from .futures import BatchResult, Unseen
from .machines.batch import ProducerBatch
from .machines.produce_requests import ProduceOrder, new_leaders, produce_request, read_answers
from .machines.sender import (
    AnswerOutcome,
    ConnectNode,
    RequestProducerId,
    SendAction,
    Sender,
    SenderOptions,
    SettledBatch,
)
from .record_intake import RecordIntake, split
from .telemetry import ProducerTelemetry, server_of
from .topic_lookup import TopicLookup
from .transactions import Transactions

logger = logging.getLogger(__name__)

_NOT_SENT = (
    NodeNotReadyError,
    ConnectionFailedError,
    AuthenticationError,
    UnsupportedVersionError,
    EncodeError,
)
"""Errors that are raised before any byte of the request was written."""


class ProducerIO:
    """Sends closed batches to their leaders. `begin` and all coroutines run in one event loop; `intake` is for any thread.

    `on_room` is called in the loop when memory was released. `missing_s`: seconds for which a topic that brokers don't know may
    be on its way to them; None leaves that to `max_block_ms`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        missing_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self.client = KafkaClient(config, clock=clock, rand=rand)
        self.intake = RecordIntake(config, ACTIVE, clock, self._hand_over, self.nudge)
        self.on_room: Callable[[], object] = lambda: None
        self.unseen = Unseen()
        self._clock = clock
        self._rand = rand
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            self.transactions = Transactions(
                config, self.client, self.intake, rand, nudge=self.nudge, dead=lambda: self._dead
            )
        self._sender = Sender(
            SenderOptions.of(config),
            split,
            rand,
            leader=self._leader,
            topic_id=lambda topic: self.client.snapshot.topic_id(topic),
            connected=self.client.connected,
            obstacle=self._obstacle,
            admits=None if self.transactions is None else self.transactions.machine.admits,
        )
        self._closed_batches: deque[ProducerBatch] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudged = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[int] = set()
        self._identifying = False
        self._no_id: KafkaActorsError | None = None
        """The error for which there is no producer id yet."""
        self._updating = False
        self._dead: KafkaActorsError | None = None
        self.learn = TopicLookup(
            self.client,
            config.max_block_ms,
            missing_s,
            lambda: None if self._dead is None else self.intake.refused(),
        ).learn
        """Waits for a topic's partitions: see `TopicLookup`."""
        self._observer = ProducerTelemetry()

    # ------------------------------------------------------------ life

    async def begin(self) -> None:
        """Connects. Raises as `KafkaClient.bootstrap`."""
        self._loop = self.intake.loop = asyncio.get_running_loop()
        self.client.set_topics(())
        with warned_when_slow(logger, lambda: f"trying on: {self.client.not_connected(SILENT_S)}"):
            await self.client.bootstrap()
        self.client.cluster.add_listener(lambda _: self.nudge())

    def unfinished(self) -> str:
        """Returns what `close` waits for."""
        waiting = list(self.intake.unsettled)
        if not waiting:
            return f"close waits for the end of the transaction{self.transactions.because if self.transactions else ''}"
        first, trouble = waiting[0].partition, self.client.trouble()
        return (
            f"close waits for {len(waiting)} batches to be acknowledged, for up to delivery_timeout_ms "
            f"({self.config.delivery_timeout_ms}) unless it has a timeout_ms; the first is for {first.topic}-{first.partition}"
            + (trouble and f"; {trouble}")
        )

    async def close(self, reason: KafkaActorsError) -> None:
        """Fails the batches that are not settled, and closes every connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._end(reason, "this producer is closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    # ------------------------------------------------------------ turns

    def _hand_over(self, batch: ProducerBatch) -> None:
        self._closed_batches.append(batch)

    def nudge(self) -> None:
        """Has `_turn` called soon in the loop. For any thread."""
        if self._nudged or self._loop is None:
            return
        self._nudged = True
        try:
            self._loop.call_soon_threadsafe(self._turn)
        except RuntimeError:  # the loop is closed: so is the producer
            pass

    def _turn(self) -> None:
        """Sends, settles and expires batches as far as possible now, and sets the timer for the next time."""
        self._nudged = False
        if self._dead is not None:
            self._take_closed()
            self._settle(self._sender.give_up(self._dead))
            return
        try:
            self._work()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Ends the producer after an unexpected error: all batches fail, so that no future waits in vain."""
        logger.error("the producer failed", exc_info=error)
        reason = f"the producer failed: {type(error).__name__}: {error}"
        self._end(UsageError(reason), reason)

    def _end(self, error: KafkaActorsError, reason: str) -> None:
        self._dead = error
        self.intake.shut(reason)
        self._take_closed()
        self._settle(self._sender.give_up(error))
        if self.transactions is not None:
            self.transactions.wake()

    def _work(self) -> None:
        now = self._clock()
        done = self.intake.close_due()
        self._take_closed()
        if self.transactions is not None and (given_up := self.transactions.giving_up) is not None:
            self._settle(self._sender.give_up(given_up))
        ready = self._sender.poll(now)
        for action in ready.actions:
            self._carry_out(action)
        wakes = [ready.next_wake, self.intake.next_due()]
        if self.transactions is not None:
            wakes.append(self._turn_transactions(self.transactions, now))
        self._set_timer(earliest(wakes), now, at_least=0.0 if done else 0.001)

    def _turn_transactions(self, transactions: Transactions, now: float) -> float | None:
        wake, changed = transactions.turn(
            now, self._sender, lambda request: self._start(transactions.ask(request, self._clock))
        )
        if changed:
            self.nudge()
        return wake

    def _carry_out(self, action: SendAction) -> None:
        match action:
            case SettledBatch():
                self._settle([action])
            case ProduceOrder():
                self._start(self._send(action))
            case ConnectNode(node) if node not in self._connecting:
                self._connecting.add(node)
                self._start(self._connect(node))
            case RefreshMetadata():
                self._want_metadata()
            case RequestProducerId() if not self._identifying:
                self._identifying = True
                self._start(self._identify())

    def _take_closed(self) -> None:
        while self._closed_batches:
            self._sender.add(self._closed_batches.popleft())

    def _set_timer(self, due: float | None, now: float, at_least: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            assert self._loop is not None
            self._timer = self._loop.call_later(max(due - now, at_least), self._turn)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._dead is None:
            self._fail(error)

    def _leader(self, partition: TopicPartition) -> int | None:
        """Returns a partition's leader; None also where the list of brokers lacks it, as that of a broker that lags: it has no address."""
        snapshot = self.client.snapshot
        leader = snapshot.leader(partition)
        return leader if leader in snapshot.brokers else None

    def _obstacle(self, partition: TopicPartition) -> str:
        """Returns why nothing can be sent to a partition now; empty if something can."""
        leader = self._leader(partition)
        if leader is None or leader < 0:
            error = error_for_code(self.client.snapshot.topic_error(partition.topic), request="Metadata")
            return f"no leader of it is known{'' if error is None else f': {error}'}"
        waits = self._no_id if self.transactions is None else self.transactions.machine.last_error
        return self.client.trouble(leader) or str(waits or "")

    # ------------------------------------------------------------ requests

    async def _send(self, order: ProduceOrder) -> None:
        error: KafkaActorsError
        began, server = self._clock(), server_of(self.client.snapshot, order.node)
        acks = -1 if self.config.acks == "all" else 1
        try:
            request = produce_request(
                order,
                acks=acks,
                timeout_ms=self.config.request_timeout_ms,
                transactional_id=None if self.transactions is None else self.transactions.transactional_id,
            )
            low, high = (None, None) if self.transactions is None else self.transactions.produce_versions
            highest = min((v for v in (high, order.max_version) if v is not None), default=None)
            response = await self.client.send(order.node, request, min_version=low, max_version=highest)
        except KafkaActorsError as caught:
            error = caught
        else:
            answers = read_answers(response, order)
            self._observer.answered(self._clock() - began, order, answers, server)
            for tp, leader, broker in new_leaders(response, order):
                self.client.cluster.update_leader(tp, leader.leader_id, leader.leader_epoch, broker)
            self._after(self._sender.answered(order, answers, self._clock()))
            return
        maybe = not isinstance(error, _NOT_SENT)
        if maybe:
            self._observer.failed(self._clock() - began, order, error, server)
        self._after(self._sender.failed(order, error, self._clock(), maybe_written=maybe))

    def _after(self, outcome: AnswerOutcome) -> None:
        self._settle(outcome.settled)
        if outcome.wants_metadata:
            self._want_metadata()
        self.nudge()

    def _settle(self, settled: Iterable[SettledBatch]) -> None:
        released = 0
        if self.transactions is not None:
            self.transactions.settled(settled := list(settled))
        for s in settled:
            batch = s.batch
            released += batch.charge
            result: BatchResult = batch.ticket
            if result.settle(batch, s):
                if result.failed and self.transactions is None:  # else its transaction's end says it
                    self.unseen.add(result)  # before a flush may find that nothing is left to wait for
                del self.intake.unsettled[result]
                result.close()
        if released:
            self.intake.release(released)
            self.on_room()

    async def _connect(self, node: int) -> None:
        """Connects to a node. Batches are sent only to connected ones, so that requests can't overtake each other."""
        try:
            # The request that a connection sends anyway when it is opened, in its smallest form.
            await self.client.send(node, ApiVersionsRequest(), max_version=0)
        except KafkaActorsError as error:
            logger.debug("no connection to broker %d: %s", node, error)
            if error.retriable:
                self._want_metadata()
            else:
                led = [p for p in self._sender.partitions if self._leader(p) == node]
                self._settle(self._sender.give_up(error, led))
        finally:
            self._connecting.discard(node)
            self.nudge()

    def _want_metadata(self) -> None:
        """Asks for metadata, one update at a time; the client adds the backoff."""
        if self._updating:
            return
        self._updating = True

        def updated(_: object) -> None:
            self._updating = False

        self.client.cluster.request_update().add_done_callback(updated)

    async def _identify(self) -> None:
        """Asks for a producer id until there is one."""
        o = self.config
        backoff = RetryTimer(o.retry_backoff_ms / 1000, o.retry_backoff_max_ms / 1000, self._rand)
        try:
            while True:
                error = self._no_id = await self._ask_for_id()
                if error is None:
                    return
                if not error.retriable:
                    self._settle(self._sender.give_up(_no_id(error)))
                    return
                await asyncio.sleep(backoff.failed(self._clock()))
        finally:
            self._identifying = False
            self.nudge()

    async def _ask_for_id(self) -> KafkaActorsError | None:
        node = self.client.least_loaded_node()
        if node is None:
            return NodeNotReadyError("no broker can be asked for a producer id now")
        try:
            response = await self.client.send(node, InitProducerIdRequest(transactional_id=None))
        except KafkaActorsError as failure:
            return failure
        error = error_for_code(response.error_code, request="InitProducerId", broker=node)
        if error is None:
            self._sender.identify(response.producer_id, response.producer_epoch)
        return error


def _no_id(error: KafkaActorsError) -> KafkaActorsError:
    if isinstance(error, (AuthorizationError, UnsupportedVersionError)):
        return ConfigError(
            "enable_idempotence", f"there is no producer id: {error}; allow IdempotentWrite, or set it False"
        )
    return error
