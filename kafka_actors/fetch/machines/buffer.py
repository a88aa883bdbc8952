"""What is fetched and not yet consumed: the byte budget, and whose turn it is.

Memory is counted by response, because a response stays in memory until its last slice is dropped. Each broker
has an equal share of the budget, so that one with much data, or one that answers nothing, never takes the
room of another.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from kafka_actors.fetch.messages import Epoch, Fetched
from kafka_actors.protocol.types import TopicPartition


class Response:
    """The memory of one fetch response, held by its slices that are still needed."""

    __slots__ = ("broker", "size", "slices")

    def __init__(self, broker: int, size: int) -> None:
        self.broker = broker
        self.size = size
        self.slices = 0


class FetchedBytes:
    """The records of one partition out of one response: `data` in the wire format, `fetched` what came with it.

    `epoch` is the assignment epoch under which they were asked for. `valid` turns False when the position was
    moved meanwhile (seek, revoke, reset): nothing of it may be handed on or committed any more.
    """

    __slots__ = ("data", "epoch", "fetched", "held", "leader_epoch", "partition", "valid")

    def __init__(self, partition: TopicPartition, data: memoryview, fetched: Fetched, held: Response) -> None:
        self.partition = partition
        self.epoch: Epoch = fetched.epoch
        self.data = data
        self.fetched = fetched
        self.held = held
        self.leader_epoch = -1  # of the last batch decoded
        self.valid = True


class Buffer:
    """Fetched slices per partition, handed out round-robin; and the bytes they hold.

    A partition that nothing was handed out of yet goes first: whoever takes over somebody else's partitions
    goes on with them before it works off what it has of its own.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: dict[int, int] = {}  # broker -> bytes of its responses still in memory
        self._ready: OrderedDict[TopicPartition, deque[FetchedBytes]] = OrderedDict()
        self._paused: dict[TopicPartition, deque[FetchedBytes]] = {}
        self._in_hand: dict[TopicPartition, deque[FetchedBytes]] = {}
        self._waiting: dict[TopicPartition, int] = {}
        self._served: set[TopicPartition] = set()
        self._newcomers: dict[TopicPartition, None] = {}  # ready, and not served yet; in order of arrival

    @property
    def total(self) -> int:
        """Bytes held over all brokers."""
        return sum(self._held.values())

    @property
    def ready(self) -> bool:
        """Whether there is something to hand out."""
        return bool(self._ready)

    def held(self, broker: int) -> int:
        """Bytes held by responses of one broker."""
        return self._held.get(broker, 0)

    def share(self, brokers: int) -> int:
        """The bytes that each of so many brokers may hold."""
        return self._budget // max(1, brokers)

    def room(self, broker: int, brokers: int) -> int:
        """How much of its share a broker has left; negative where one batch was larger than that."""
        return self.share(brokers) - self.held(broker)

    def buffered(self, tp: TopicPartition) -> int:
        """Record bytes of one partition that wait to be handed out."""
        return self._waiting.get(tp, 0)

    def hold(self, broker: int, size: int) -> Response:
        """Counts a response; `add` its slices, then `settle` it."""
        self._held[broker] = self.held(broker) + size
        return Response(broker, size)

    def settle(self, response: Response) -> None:
        """All slices are added: a response without any is gone at once."""
        if response.slices == 0:
            self._release(response)

    def add(self, item: FetchedBytes, *, paused: bool) -> None:
        item.held.slices += 1
        queues = self._paused if paused else self._ready
        queues.setdefault(item.partition, deque()).append(item)
        if not paused and item.partition not in self._served:
            self._newcomers[item.partition] = None
        self._waiting[item.partition] = self.buffered(item.partition) + len(item.data)

    @property
    def newcomer(self) -> bool:
        """Whether the next slice is the first one of its partition."""
        return bool(self._newcomers)

    def take(self) -> FetchedBytes | None:
        """The next slice to hand out; its partition's next turn comes after all others'."""
        if not self._ready:
            return None
        tp = next(iter(self._newcomers or self._ready))
        queue = self._ready[tp]
        self._newcomers.pop(tp, None)
        self._served.add(tp)
        item = queue.popleft()
        if queue:
            self._ready.move_to_end(tp)
        else:
            del self._ready[tp]
        self._waiting[tp] -= len(item.data)
        self._in_hand.setdefault(tp, deque()).append(item)
        return item

    def consumed(self, tp: TopicPartition, next_offset: int) -> bool:
        """Everything below is consumed: slices in hand that end there are done with. Returns whether any was."""
        in_hand = self._in_hand.get(tp, deque())
        before = len(in_hand)
        while in_hand and in_hand[0].fetched.next_offset <= next_offset:
            self._let_go(in_hand.popleft())
        if not in_hand:
            self._in_hand.pop(tp, None)
        return len(in_hand) < before

    def pause(self, tp: TopicPartition) -> None:
        """Keeps what is fetched, hands none of it out."""
        queue = self._ready.pop(tp, None)
        if queue:
            self._paused[tp] = queue
            self._newcomers.pop(tp, None)

    def resume(self, tp: TopicPartition) -> None:
        queue = self._paused.pop(tp, None)
        if queue:
            self._ready[tp] = queue

    def drop(self, tp: TopicPartition, *, in_hand: bool) -> None:
        """Drops what waits; with `in_hand` also what is handed out, which becomes invalid."""
        for queues in (self._ready, self._paused, self._in_hand) if in_hand else (self._ready, self._paused):
            for item in queues.pop(tp, ()):
                item.valid = False
                self._let_go(item)
        self._waiting.pop(tp, None)
        self._newcomers.pop(tp, None)
        if in_hand:
            self._served.discard(tp)

    def in_hand(self, tp: TopicPartition) -> bool:
        """Whether the user still has something of it."""
        return tp in self._in_hand

    def idle_holders(self, broker: int) -> list[TopicPartition]:
        """Paused partitions whose slices alone fill a broker's share; empty while anything else can be handed
        out or is in hand, because then room comes by itself."""
        if any(
            i.held.broker == broker
            for queues in (self._ready, self._in_hand)
            for q in queues.values()
            for i in q
        ):
            return []
        return [tp for tp, queue in self._paused.items() if any(item.held.broker == broker for item in queue)]

    def _let_go(self, item: FetchedBytes) -> None:
        item.held.slices -= 1
        if item.held.slices == 0:
            self._release(item.held)

    def _release(self, response: Response) -> None:
        self._held[response.broker] -= response.size
        if self._held[response.broker] == 0:
            del self._held[response.broker]
