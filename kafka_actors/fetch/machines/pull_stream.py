"""The streams of pulls to brokers: which partitions each has been asked for, and how many pulls are on their way.

The worker side asks a connection side for records by pulls. One pull is credit for one response, and names only the changes since
the pull before it, as a fetch session does (KIP-227). So pulls to one broker form a stream: numbered from 0, answered in
order, and of use only as a whole. When a pull fails the stream ends: it is replaced by a new one, which asks for everything
again from the partitions' own positions. Answers carry the `token` of their stream, so that those of an old one are told apart.

A partition is in at most one stream, that of its source (the leader, or the follower that the leader named), and moves with
it: `PullStreams.route` compares the partitions that were changed (`PartitionTable.dirty`) with the streams that they are in.
An answer to a pull before the one that requested a partition last is stale, whatever its offset.

The worker repeats no pull. If one gets lost on its way, the connection side refuses the next for the gap in the numbers, and
that failure ends the stream. A lost answer ends it, too. A pull may arrive twice, as a call that was made again on its way: then the
number refuses it, and `Pull.stream` the first of a stream, which would begin it anew. Answers that come after the end find another
token, or no stream, and are dropped, so nothing is counted or buffered twice.

One pull at a time is always allowed. More, up to `credit`, only while records come: a pull that waits behind a long poll
would keep the changes that come after it waiting too.

A pull may have several small answers, whose bytes are taken from what it may bring; all but the last say so. It counts as one that waits
for its answer, so no other is sent, until a change has it brought to an end (`EndPull`): its last answer then comes after one long poll at most.
The broker's wait for records is such a change, too: a short one costs a request each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from kafka_actors.base.timeouts import throttle_s
from kafka_actors.errors import for_code
from kafka_actors.fetch.messages import FetchReply, PartitionFetch, Pull
from kafka_actors.types import TopicPartition

from .partition_state import FetchPartition
from .partition_table import PartitionTable

NEVER = float("inf")
SILENT_S = 1.5
"""Seconds beyond its long poll after which a broker that doesn't answer may be a stopped one."""


class PullToSend(Struct, frozen=True):
    """A pull to send. `token` names the stream; it comes back with the answer."""

    broker: int
    token: int
    pull: Pull


class EndPull(Struct, frozen=True):
    """A request to bring the answers to the present pull of a stream to an end: another one is to be sent."""

    token: int


class PullStream:
    """Pulls to one broker, with their partitions and credit."""

    __slots__ = (
        "broker",
        "busy",
        "ending",
        "failures",
        "has_more",
        "outstanding",
        "patience_s",
        "requested",
        "retry_at",
        "sequence",
        "silent_at",
        "starved",
        "to_add",
        "to_forget",
        "token",
        "trouble",
        "wait_ms",
        "yield_at",
    )

    def __init__(self, broker: int, token: int) -> None:
        self.broker = broker
        self.token = token
        self.sequence = 0
        self.requested: dict[TopicPartition, int] = {}  # -> the sequence of the pull that requested it last
        self.to_add: dict[TopicPartition, None] = {}  # with the next pull
        self.to_forget: dict[TopicPartition, None] = {}
        self.outstanding: dict[int, int] = {}  # sequence -> bytes that the response may bring
        self.has_more = False  # the last answer was not the only one to its pull: more of them come
        self.ending = False  # and that pull is to be brought to an end
        self.wait_ms = 0  # the broker's wait for records, under the pull that was answered last
        self.busy = False  # the last answer brought records, so the next pull shouldn't wait for its turn
        self.starved = False  # no room for another response
        self.yield_at = NEVER  # without room until then, partitions that wait behind a long call lose theirs
        self.retry_at = 0.0
        self.silent_at = NEVER  # without an answer until then, leaders are looked up
        self.patience_s = SILENT_S  # with the broker's wait for records
        self.failures = 0
        self.trouble = ""  # why the last request was in vain, for people; empty once the broker has answered

    @property
    def active(self) -> bool:
        """Whether there is anything to fetch from this broker."""
        return bool(self.requested or self.to_add)

    @property
    def partitions(self) -> int:
        """The number of partitions that are fetched, or will be from the next pull on."""
        return len(self.requested) + len(self.to_add)

    @property
    def reserved(self) -> int:
        """Bytes that outstanding pulls may bring."""
        return sum(self.outstanding.values())

    def add(self, tp: TopicPartition) -> None:
        """Fetches a partition, from wherever it stands when the next pull is made."""
        self.to_forget.pop(tp, None)
        self.to_add[tp] = None

    def remove(self, tp: TopicPartition) -> None:
        """Fetches a partition no more."""
        self.to_add.pop(tp, None)
        if self.requested.pop(tp, None) is not None:
            self.to_forget[tp] = None

    def dropped(self, tp: TopicPartition) -> None:
        """Notes that the connection side has taken a partition out of its session by itself."""
        self.requested.pop(tp, None)

    def may_pull(self, credit: int, now: float) -> bool:
        """Whether another pull may be sent; `credit` is the most that may be outstanding."""
        allowed = credit if self.busy else 1
        return self.active and len(self.outstanding) < allowed and self.retry_at <= now

    def end_pull(self, wait_ms: int) -> tuple[EndPull, ...]:
        """Returns what ends a pull that has more answers, once there is something else to ask for, or nothing any more, or the broker is to wait
        for another time: `wait_ms`."""
        if not self.has_more or self.ending:
            return ()
        if self.active and not self.to_add and not self.to_forget and wait_ms == self.wait_ms:
            return ()
        self.ending = True
        return (EndPull(self.token),)

    def pull(
        self,
        wants: list[PartitionFetch],
        max_bytes: int,
        max_wait_ms: int,
        followers: bool,
    ) -> PullToSend:
        """Makes the next pull; `wants` are those of `to_add`. Its response has `max_bytes` at most, as a rule."""
        pull = Pull(
            sequence=self.sequence,
            wants=wants,
            forget=[(tp.topic, tp.partition) for tp in self.to_forget] if self.sequence else [],
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            followers=followers,
            stream=self.token,
        )
        for tp in self.to_add:
            self.requested[tp] = self.sequence
        self.to_add.clear()
        self.to_forget.clear()
        self.outstanding[self.sequence] = max_bytes
        self.sequence += 1
        return PullToSend(self.broker, self.token, pull)

    def answered(self, reply: FetchReply, now: float, backoff: Callable[[int], float]) -> None:
        """Counts an answer: throttled streams rest, and refused ones from the second time in a row on.

        A broker that throttles answers at once and expects the client to be silent for the time that it names (KIP-219); a request
        in that time would wait in the broker, and look like a broker that doesn't answer.
        """
        left = self.outstanding.pop(reply.sequence, 0)
        self.silent_at = NEVER
        self.has_more, self.ending = reply.more, self.ending and reply.more
        if reply.more:
            self.outstanding[reply.sequence] = max(0, left - reply.size)
            self.silent_at = now + self.patience_s
        self.retry_at = now + throttle_s(reply.throttle_ms / 1000) if reply.throttle_ms else 0.0
        self.busy = not reply.more and any(fetched.size for fetched in reply.partitions)
        self.trouble = ""
        if not reply.error_code:
            self.failures = 0
            return
        # A session that the broker lost is opened anew at once; a broker that goes on refusing is left in peace.
        self.failures += 1
        if self.failures > 1:
            self.retry_at = now + backoff(self.failures - 1)
            error = for_code(reply.error_code)
            self.trouble = error.name if error is not None else ""

    def is_silent(self, now: float, max_wait_s: float) -> bool:
        """Whether the broker owes an answer for too long; again each `SILENT_S`. Call it at each plan."""
        if not self.outstanding:
            self.silent_at = NEVER
        elif now >= self.silent_at:
            self.silent_at = now + SILENT_S
            self.trouble = self.trouble or "no answer yet"
            return True
        elif self.silent_at == NEVER:
            self.patience_s = max_wait_s + SILENT_S
            self.silent_at = now + self.patience_s
        return False


class PullStreams:
    """The streams of one fetcher, one for each broker that it fetches from."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        self.by_broker: dict[int, PullStream] = {}
        self._broker_of: dict[TopicPartition, int] = {}
        self._tokens = 0

    def __len__(self) -> int:
        return len(self.by_broker)

    def of(self, tp: TopicPartition) -> PullStream | None:
        """Returns the stream that a partition is in, None if it isn't fetched."""
        return self.by_broker.get(self._broker_of.get(tp, -1))

    def route(self, now: float, left_out: Collection[TopicPartition]) -> None:
        """Moves each partition that was changed into the stream of its source; those `left_out` into none.

        A partition leaves its old stream before it enters the new one, so an answer of the old broker, if one is still on its way,
        doesn't count. One that stays in its stream is requested again: its offset, epoch or topic id may be another one now.
        """
        dirty, self._table.dirty = self._table.dirty, {}
        for tp in dirty:
            partition = self._table.get(tp)
            target = None if partition is None else _target(partition, now, left_out)
            current = self._broker_of.pop(tp, None)
            if current is not None and current != target and current in self.by_broker:
                self.by_broker[current].remove(tp)
            if target is not None:
                self._broker_of[tp] = target
                self._open(target).add(tp)

    def restart(self, stream: PullStream) -> PullStream:
        """Replaces a stream that failed by a new one, which asks for the same partitions.

        Bytes that the lost answers could have brought no longer count as reserved, and each partition is asked for from its
        `fetched` offset: records that are buffered already stay, and none is skipped or handed out twice.
        """
        fresh = self._new(stream.broker)
        fresh.failures = stream.failures + 1
        for tp in [*stream.requested, *stream.to_add]:
            fresh.add(tp)
        return fresh

    def end(self, stream: PullStream) -> None:
        """Removes a stream. Answers that are still on their way to it will be ignored."""
        del self.by_broker[stream.broker]

    def wakeup(self, now: float) -> float | None:
        """Returns when the next pause or deadline of a stream is over, None for never."""
        wake = NEVER
        for stream in self.by_broker.values():
            for at in (stream.retry_at, stream.silent_at, stream.yield_at):
                if now < at < wake:
                    wake = at
        return None if wake == NEVER else wake

    def _open(self, broker: int) -> PullStream:
        stream = self.by_broker.get(broker)
        return self._new(broker) if stream is None else stream

    def _new(self, broker: int) -> PullStream:
        self._tokens += 1
        stream = self.by_broker[broker] = PullStream(broker, self._tokens)
        return stream


def _target(partition: FetchPartition, now: float, left_out: Collection[TopicPartition]) -> int | None:
    """Returns the broker to fetch a partition from, None for now. Whoever ends the hindrance has to `touch` the partition, because
    only those that were changed are routed: the end of a backoff, a leader that is known, room in the buffer."""
    if not partition.wants_records or partition.retry_at > now or partition.tp in left_out:
        return None
    return partition.source if partition.source >= 0 else None


def want_of(partition: FetchPartition, max_bytes: int) -> PartitionFetch:
    """Returns the request for a partition from where it stands now."""
    return PartitionFetch(
        topic=partition.tp.topic,
        partition=partition.tp.partition,
        epoch=partition.epoch,
        fetch_offset=partition.fetched,
        max_bytes=max_bytes,
        topic_id=partition.topic_id,
        leader_epoch=partition.leader_epoch,
        shared=partition.shared,
    )
