"""The records that are fetched and not yet consumed: their memory, and the order in which they are handed out.

Theory of operation. Arrives: the slices of each response (`hold`, `add`, `settle`), and the user's progress (`take`,
`consumed`, `put_back`). A slice waits in one of three queues of its partition, and then is in hand:

- `_ready`: to be handed out; partitions take turns.
- `_paused`: kept until `resume`.
- `_behind`, only under `one_by_one`: until the slices of the partition that are in hand are consumed.
- `_in_hand`: taken by the user. It is released once everything in it is consumed, or the position moves.

Memory is counted by response, because a response stays in memory until its last slice is released. Each broker has an equal
share of the budget, so that one with much data, or one that doesn't answer, never takes the room of another. `fairness` decides
what to do when a share is full; here is only the count.

Decided here: whose turn it is. Partitions take turns, except that one of which no records were handed out yet goes first:
a consumer that takes over partitions goes on with them before it works off its own backlog. Slices that follow each
other come together (`PartitionSlice.is_followed_by`), so that a pile of small ones shrinks.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kafka_actors.fetch.messages import Epoch, FetchedPartition
from kafka_actors.types import TopicPartition

_NOTHING = memoryview(b"")


class ResponseMemory:
    """The memory of one fetch response; `slices` of it are still needed."""

    __slots__ = ("broker", "size", "slices")

    def __init__(self, broker: int, size: int) -> None:
        self.broker = broker
        self.size = size
        self.slices = 0


class PartitionSlice:
    """The records of one partition in one response, in the wire format, with the fields of the response (`fetched`).

    `valid` turns False when the position was moved meanwhile (seek, revoke, reset).
    """

    __slots__ = ("data", "fetched", "held", "valid")

    def __init__(self, data: memoryview, fetched: FetchedPartition, held: ResponseMemory) -> None:
        self.data = data
        self.fetched = fetched
        self.held = held
        self.valid = True

    def is_followed_by(self, other: PartitionSlice) -> bool:
        """Whether one decoder may go on from here into the other: no offsets lie between, and neither has aborted
        transactions."""
        first, second = self.fetched, other.fetched
        return (
            first.fetch_offset < first.next_offset == second.fetch_offset < second.next_offset
            and first.epoch == second.epoch
            and not first.aborted
            and not second.aborted
        )


class FetchedBytes:
    """Records of one partition from `fetch_offset` to `next_offset`: one slice, or several that follow each other.

    `epoch` is the assignment epoch under which they were requested. `valid` turns False when the position was
    moved meanwhile: they must not be handed on or committed any more.
    """

    __slots__ = ("aborted", "epoch", "fetch_offset", "leader_epoch", "next_offset", "partition", "slices")

    def __init__(self, partition: TopicPartition, slices: list[PartitionSlice]) -> None:
        first = slices[0].fetched
        self.partition = partition
        self.slices = slices
        self.epoch: Epoch = first.epoch
        self.fetch_offset = first.fetch_offset
        self.next_offset = slices[-1].fetched.next_offset
        self.aborted = first.aborted
        self.leader_epoch = -1  # of the last batch decoded

    @property
    def valid(self) -> bool:
        return self.slices[-1].valid  # the last one to be released

    def log_end(self, read_committed: bool) -> int | None:
        """Returns the high watermark that came with the last slice, under read_committed the last stable offset; None where the
        broker didn't send it."""
        last = self.slices[-1].fetched
        end = last.last_stable_offset if read_committed else last.high_watermark
        return end if end >= 0 else None


class Buffer:
    """Queues of fetched slices, and the bytes that they hold.

    `budget`: bytes of responses in memory. `together`: bytes of one partition that are handed out at once. `one_by_one` is for
    users that work on many partitions at a time, perhaps on one for long: records of a partition are handed out only when those
    before them are consumed. Records in hand then are copied out of their response, and don't count against a broker's share, up
    to as much again.
    """

    def __init__(self, budget: int, together: int = 0, *, one_by_one: bool = False) -> None:
        self._budget = budget
        self._together = together
        self._one_by_one = one_by_one
        self._held: dict[int, int] = {}  # broker -> bytes of its responses still in memory
        self._ready: OrderedDict[TopicPartition, deque[PartitionSlice]] = OrderedDict()
        self._paused: dict[TopicPartition, deque[PartitionSlice]] = {}
        self._behind: dict[TopicPartition, deque[PartitionSlice]] = {}
        self._in_hand: dict[TopicPartition, deque[PartitionSlice]] = {}
        self._lent: dict[int, int] = {}  # broker -> bytes in hand, under `one_by_one`
        self._waiting: dict[TopicPartition, int] = {}  # bytes
        # Partitions with records handed out since they were assigned.
        self._served: set[TopicPartition] = set()
        self._newcomers: dict[TopicPartition, None] = {}  # ready, and not served yet; in order of arrival

    @property
    def total(self) -> int:
        """Bytes held over all brokers."""
        return sum(self._held.values())

    @property
    def ready(self) -> bool:
        """Whether there are records to hand out."""
        return bool(self._ready)

    @property
    def waiting(self) -> Iterable[TopicPartition]:
        """Partitions with records to hand out."""
        return self._ready.keys()

    def held(self, broker: int) -> int:
        """Returns the bytes held by responses of one broker."""
        return self._held.get(broker, 0)

    def share(self, brokers: int) -> int:
        """Returns the bytes that each of so many brokers may hold."""
        return self._budget // max(1, brokers)

    def room(self, broker: int, brokers: int) -> int:
        """Returns the bytes left of a broker's share; negative where one batch was larger than that."""
        share = self.share(brokers)
        return share - self.held(broker) + min(share, self._lent.get(broker, 0))

    def buffered(self, tp: TopicPartition) -> int:
        """Returns the record bytes of one partition that wait to be handed out."""
        return self._waiting.get(tp, 0)

    def hold(self, broker: int, size: int) -> ResponseMemory:
        """Counts a response; `add` its slices, then `settle` it."""
        self._held[broker] = self.held(broker) + size
        return ResponseMemory(broker, size)

    def settle(self, response: ResponseMemory) -> None:
        """Releases a response without slices. Call it when all of them are added."""
        if response.slices == 0:
            self._release(response)

    def add(self, tp: TopicPartition, piece: PartitionSlice, *, paused: bool) -> None:
        """Queues a slice behind those of its partition."""
        piece.held.slices += 1
        queues = self._paused if paused else self._queues_for(tp)
        queues.setdefault(tp, deque()).append(piece)
        if not paused and tp not in self._served:
            self._newcomers[tp] = None
        self._waiting[tp] = self.buffered(tp) + len(piece.data)

    @property
    def newcomer(self) -> bool:
        """Whether the next slice is the first one of its partition."""
        return bool(self._newcomers)

    def take(self) -> FetchedBytes | None:
        """Returns the next records to hand out, None if there are none; their partition's next turn comes after all others'.

        Slices that follow each other come together, up to `together` bytes: each costs the user as much whether it has one
        record or a thousand, and it is small ones that pile up.
        """
        if not self._ready:
            return None
        tp = next(iter(self._newcomers or self._ready))
        queue = self._ready[tp]
        self._newcomers.pop(tp, None)
        self._served.add(tp)
        taken = [queue.popleft()]
        size = len(taken[0].data)
        while queue and size + len(queue[0].data) <= self._together and taken[-1].is_followed_by(queue[0]):
            taken.append(queue.popleft())
            size += len(taken[-1].data)
        self._ready.move_to_end(tp)
        if not queue or self._one_by_one:
            del self._ready[tp]
        if self._one_by_one:
            for piece in taken:
                self._set_apart(piece)
                self._lend(piece, len(piece.data))
            if queue:
                self._behind[tp] = queue
        self._waiting[tp] -= size
        self._in_hand.setdefault(tp, deque()).extend(taken)
        return FetchedBytes(tp, taken)

    def consumed(self, tp: TopicPartition, next_offset: int) -> bool:
        """Releases the slices in hand that end at or below `next_offset`. Returns whether there were any.

        An unreadable one, which leads to no later offset, begins there too: it stays until the decoder has seen it.
        """
        in_hand = self._in_hand.get(tp, deque())
        before = len(in_hand)
        while in_hand and _is_behind(in_hand[0].fetched, next_offset):
            self._done_with(in_hand.popleft())
        if not in_hand:
            self._in_hand.pop(tp, None)
            if (queue := self._behind.pop(tp, None)) is not None:
                self._ready[tp] = queue
        return len(in_hand) < before

    def put_back(self, tp: TopicPartition, position: int, *, paused: bool) -> None:
        """Queues the slices in hand again, from `position` on: in front of the rest of their partition and behind all others."""
        pieces = self._in_hand.pop(tp, None)
        if not pieces:
            return
        first = pieces[0]
        if first.fetched.fetch_offset < position:
            first.fetched = replace(first.fetched, fetch_offset=position)
        for piece in pieces:
            self._waiting[tp] = self.buffered(tp) + len(piece.data)
            if self._one_by_one:
                self._lend(piece, -len(piece.data))
        waiting: deque[PartitionSlice] = deque()
        for queues in (self._ready, self._behind, self._paused):
            waiting.extend(queues.pop(tp, deque()))
        (self._paused if paused else self._ready)[tp] = deque((*pieces, *waiting))

    def pause(self, tp: TopicPartition) -> None:
        """Keeps the records of a partition, and hands none of them out until `resume`."""
        queue = self._queues_for(tp).pop(tp, None)
        if queue:
            self._paused[tp] = queue
            self._newcomers.pop(tp, None)

    def resume(self, tp: TopicPartition) -> None:
        """Ends `pause`."""
        queue = self._paused.pop(tp, None)
        if queue:
            self._queues_for(tp)[tp] = queue

    def drop(self, tp: TopicPartition, *, in_hand: bool) -> None:
        """Drops the records that wait; with `in_hand` also those that are handed out, which become invalid."""
        for queues in (self._ready, self._paused, self._behind):
            for piece in queues.pop(tp, ()):
                piece.valid = False
                self._free(piece)
        if in_hand:
            for piece in self._in_hand.pop(tp, ()):
                piece.valid = False
                self._done_with(piece)
        self._waiting.pop(tp, None)
        self._newcomers.pop(tp, None)

    def forget(self, tp: TopicPartition) -> None:
        """Counts a partition as new if it comes back: it is revoked."""
        self._served.discard(tp)

    def in_hand(self, tp: TopicPartition) -> bool:
        """Whether the user has records of the partition."""
        return tp in self._in_hand

    def idle_holders(self, broker: int, paused: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Returns the paused partitions whose slices alone fill a broker's share, those in hand included; none while slices of
        others can be handed out or are in hand, because then room comes by itself."""
        holders: dict[TopicPartition, None] = {}
        for queues in (self._ready, self._in_hand, self._paused, self._behind):
            for tp in _holding(broker, queues):
                if not paused(tp):
                    return []
                holders[tp] = None
        return list(holders)

    def crowding(self, broker: int) -> list[TopicPartition]:
        """Returns the partitions whose slices in a broker's share wait behind those in hand; none while slices of that share can
        be handed out, because then room comes by itself."""
        return [] if _holding(broker, self._ready) else _holding(broker, self._behind)

    def _queues_for(self, tp: TopicPartition) -> dict[TopicPartition, deque[PartitionSlice]]:
        """Returns the queues in which the next slices of a partition wait that isn't paused."""
        return self._behind if self._one_by_one and tp in self._in_hand else self._ready

    def _set_apart(self, piece: PartitionSlice) -> None:
        """Copies a slice out of a response that it is a small part of, so that a long call keeps only the slice in memory."""
        if 2 * len(piece.data) >= piece.held.size:
            return
        own = self.hold(piece.held.broker, len(piece.data))
        own.slices = 1
        data = memoryview(bytes(piece.data))
        self._free(piece)
        piece.data, piece.held = data, own

    def _lend(self, piece: PartitionSlice, size: int) -> None:
        broker = piece.held.broker
        self._lent[broker] = self._lent.get(broker, 0) + size

    def _done_with(self, piece: PartitionSlice) -> None:
        if self._one_by_one:
            self._lend(piece, -len(piece.data))
        self._free(piece)

    def _free(self, piece: PartitionSlice) -> None:
        piece.data = _NOTHING  # the memory is used again, even if the slice is still referenced
        piece.held.slices -= 1
        if piece.held.slices == 0:
            self._release(piece.held)

    def _release(self, response: ResponseMemory) -> None:
        self._held[response.broker] -= response.size
        if self._held[response.broker] == 0:
            del self._held[response.broker]


def _is_behind(fetched: FetchedPartition, position: int) -> bool:
    """Returns whether a position has passed all of these records."""
    return fetched.fetch_offset < position and fetched.next_offset <= position


def _holding(broker: int, queues: Mapping[TopicPartition, deque[PartitionSlice]]) -> list[TopicPartition]:
    """Returns the partitions whose queues have slices of that broker's responses."""
    return [tp for tp, queue in queues.items() if any(piece.held.broker == broker for piece in queue)]
