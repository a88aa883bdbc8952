"""The division of the byte budget: how much each broker and each partition may bring, and who is left out meanwhile.

Each broker has an equal share of the budget (`Buffer.share`). A share has room for `credit` outstanding responses and one that is
being consumed, which gives the size of a response; `fetch_max_bytes` bounds it. A pull is sent only when its response has
room, and outstanding ones are counted at the most that they may bring.

Three things can fill a share, each with its own way out:

- A partition with a backlog, beside others of its broker: above half of the share it is left out of the stream, and asked for
  again when a quarter is left. While it is out, long polls are short (`SHORT_WAIT_MS`), so that it doesn't wait behind one.
- Paused partitions: nobody consumes their records, so no room would ever come. If they alone fill the share, and no response
  is outstanding, their records are discarded and fetched again after `resume`.
- Under `one_by_one` (see `Buffer`), records that wait behind a long call. After `YIELD_S` without room they are discarded in
  favour of the broker's other partitions, and fetched again when their turn comes.

KIP-74 is the source of the sizes: a response's and a partition's bound apply to all but the first batch of a response.
"""

from __future__ import annotations

from kafka_actors.config import ConsumerConfig
from kafka_actors.types import TopicPartition

from .buffer import Buffer, FetchedBytes
from .partition_table import PartitionTable
from .pull_stream import NEVER, PullStream, PullStreams

SHORT_WAIT_MS = 20
PARTITION_BYTES = 2 * 1024 * 1024  # twice Kafka's default: many partitions are read a sixth faster
RESPONSE_BYTES = 8 * PARTITION_BYTES  # what a response should be able to bring, also of few partitions
YIELD_S = 0.5


class Fairness:
    """Sizes of the pulls of one fetcher, and the partitions that are left out of them for want of room.

    `credit` is the number of pulls outstanding per broker while records flow.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        table: PartitionTable,
        buffer: Buffer,
        streams: PullStreams,
        *,
        credit: int,
        one_by_one: bool,
    ) -> None:
        self._fetch_max_bytes = config.fetch_max_bytes
        self._fetch_max_wait_ms = config.fetch_max_wait_ms
        self._max_partition_fetch_bytes = config.max_partition_fetch_bytes
        self._table = table
        self._buffer = buffer
        self._streams = streams
        self._credit = credit
        self._one_by_one = one_by_one
        self.left_out: set[TopicPartition] = set()

    # ------------------------------------------------------------ sizes

    def response_bytes(self, stream: PullStream) -> int:
        """Returns the bytes that one response has at most, but for a first batch that is larger."""
        share = self._buffer.share(len(self._streams))
        most = max(1, min(self._fetch_max_bytes, share // (self._credit + 1)))
        return min(most, max(1, stream.partitions) * self.partition_bytes(stream))

    def partition_bytes(self, stream: PullStream) -> int:
        """Returns the bytes to ask for of each partition: the user's bound, or more where partitions are few, because each
        request takes the broker about as long, whatever it brings."""
        bound = self._max_partition_fetch_bytes
        return bound or max(PARTITION_BYTES, RESPONSE_BYTES // max(1, stream.partitions))

    def wait_ms(self, stream: PullStream) -> int:
        """Returns how long the broker may wait for records. Shorter while a partition is left out, but not for one that waits
        for records in the user's hands, which may take much longer."""
        left_out = any(
            self._table.require(tp).source == stream.broker
            for tp in self.left_out
            if not (self._one_by_one and self._buffer.in_hand(tp))
        )
        return min(SHORT_WAIT_MS, self._fetch_max_wait_ms) if left_out else self._fetch_max_wait_ms

    # ------------------------------------------------------------ room

    def make_room(self, stream: PullStream, need: int, now: float) -> bool:
        """Whether `need` bytes have room in the share of a broker, after discarding records that stand in the way."""
        if self._room(stream) >= need:
            stream.yield_at = NEVER
            return True
        if not stream.outstanding:
            for tp in self._buffer.idle_holders(stream.broker, self._is_paused):
                self._table.rewind(tp)
            self.discard()
        if self._one_by_one:
            self._yield(stream, need, now)
        return self._room(stream) >= need

    def may_pull_again(self, item: FetchedBytes) -> bool:
        """Whether a stream that records came by, and that had no room for another pull, has it now, or can have that of paused partitions."""
        for piece in item.slices:
            stream = self._streams.by_broker.get(piece.held.broker)
            if stream is not None and stream.starved and self._has_room_again(stream):
                return True
        return False

    def _has_room_again(self, stream: PullStream) -> bool:
        if self._room(stream) >= self.response_bytes(stream):
            return True
        return not stream.outstanding and bool(self._buffer.idle_holders(stream.broker, self._is_paused))

    def _room(self, stream: PullStream) -> int:
        return self._buffer.room(stream.broker, len(self._streams)) - stream.reserved

    def _yield(self, stream: PullStream, need: int, now: float) -> None:
        """Has partitions whose records wait behind those in hand give way, after a while without room."""
        if self._room(stream) >= need or stream.outstanding:
            stream.yield_at = NEVER
            return
        if stream.yield_at == NEVER:
            stream.yield_at = now + YIELD_S
        others = [tp for tp in (*stream.requested, *stream.to_add) if not self._buffer.in_hand(tp)]
        if now < stream.yield_at or not others:
            return
        stream.yield_at = now + YIELD_S
        crowding = self._buffer.crowding(stream.broker)
        for tp in crowding:
            self._table.drop_waiting(tp)
        self.discard()
        self.left_out.update(crowding)
        self._streams.route(now, self.left_out)

    def _is_paused(self, tp: TopicPartition) -> bool:
        partition = self._table.get(tp)
        return partition is not None and partition.paused

    # ------------------------------------------------------------ partitions

    def buffered(self, tp: TopicPartition, stream: PullStream) -> None:
        """Leaves a partition out, after records of it came, if it takes the room of others."""
        half = self._buffer.share(len(self._streams)) // 2
        if self._buffer.buffered(tp) > half and len(stream.requested) > 1:
            self.left_out.add(tp)
            self._table.touch(tp)

    def taken(self, tp: TopicPartition) -> None:
        """Takes a partition in again, after records of it were handed out, if few of them are left."""
        if tp in self.left_out and self._buffer.buffered(tp) <= self._buffer.share(len(self._streams)) // 4:
            self.left_out.discard(tp)
            self._table.touch(tp)
            self._table.needs_plan = True

    def discard(self) -> None:
        """Drops the records that the table has declared void; their partitions are left out no more."""
        void, self._table.discard = self._table.discard, {}
        for tp, in_hand in void.items():
            self._buffer.drop(tp, in_hand=in_hand)
            self.left_out.discard(tp)
            self._table.needs_plan = True
