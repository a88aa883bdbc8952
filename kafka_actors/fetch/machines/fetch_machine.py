"""The worker's side of fetching as a whole: positions, the stream of pulls to each broker, and the buffer.

`poll` says what to send now and when to poll again; `on_…` take what came back; `take` hands out. No IO, no
clock: the shell (`kafka_actors.fetch.fetch_driver`) has both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec import Struct

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.base.machine import Ready
from kafka_actors.base.timeouts import throttle_s
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import AuthenticationError, KafkaActorsError, RecordError
from kafka_actors.events import BadBatchSkipped, Event
from kafka_actors.fetch.messages import Epoch, FetchReply, Pull, Records
from kafka_actors.types import TopicPartition

from .buffer import Buffer, FetchedBytes, PartitionSlice
from .partition_state import UNKNOWN, FetchPartition, FetchProgress, FetchState, LookupPurpose, PartitionStart
from .positions import EpochValidation, Positions
from .pull_stream import PullStream, want_of
from .resets import OffsetLookup, ResetPolicy

SHORT_WAIT_MS = 20
PARTITION_BYTES = 2 * 1024 * 1024  # twice Kafka's default: many partitions are read a sixth faster
RESPONSE_BYTES = 8 * PARTITION_BYTES  # what a response should be able to bring, also of few partitions
TOGETHER_BYTES = 4 * 1024 * 1024  # of one partition, handed out at once: more makes nothing faster
CROWDED_S = (
    0.5  # without room for so long: what waits for its turn behind a long call is dropped, for the others
)
DOUBT_S = 1.5  # a broker that is silent for so long behind its long poll makes us look whether leaders moved


class PullToSend(Struct, frozen=True):
    """A pull to send. `token` names the stream; it comes back with the answer."""

    broker: int
    token: int
    pull: Pull


FetchAction = PullToSend | OffsetLookup | EpochValidation | RefreshMetadata


class FetchMachine:
    """See the module. `credit`: pulls outstanding per broker while records flow; `budget`: bytes of responses in memory
    (0: `worker_buffer_bytes`); `together`: bytes of a partition handed out at once; `one_by_one`: see `Buffer`."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        rand: Callable[[], float],
        credit: int = 2,
        budget: int = 0,
        together: int = TOGETHER_BYTES,
        one_by_one: bool = False,
    ) -> None:
        self._config = config
        self._reconnect_backoff = _backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rand)
        self._credit = credit
        self._on_bad_batch = config.on_bad_batch
        self.positions = Positions(
            ResetPolicy(config.auto_offset_reset, config.on_data_loss),
            _backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rand),
            read_committed=config.isolation_level == "read_committed",
            replica_lifetime_s=config.metadata_max_age_ms / 1000,
        )
        self.buffer = Buffer(budget or config.worker_buffer_bytes, together, one_by_one=one_by_one)
        self._one_by_one = one_by_one
        self._streams: dict[int, PullStream] = {}
        self._tokens = 0
        self._source: dict[TopicPartition, int] = {}  # the broker whose stream has the partition
        self._full: set[TopicPartition] = set()  # so much buffered that others need the room
        self._errors: list[FetchPartition] = []
        self._raised = False
        self._replica_rest_s = config.metadata_max_age_ms / 1000
        self._leaders_until = 0.0  # a follower failed: until then leaders are not to name one
        self._snapshot: ClusterSnapshot | None = None
        self.needs_plan = False  # something changed that `plan` should see soon

    # ------------------------------------------------------------ what is asked of this worker

    def assign(self, tp: TopicPartition, start: PartitionStart) -> None:
        known = self.positions.get(tp)
        if known is not None and known.epoch != start.epoch:
            self.buffer.forget(tp)
        self.positions.assign(tp, start, self._snapshot)
        self._apply_void()

    def revoke(self, tp: TopicPartition) -> None:
        self.positions.revoke(tp)
        self._apply_void()
        self.buffer.forget(tp)
        self._full.discard(tp)
        self._collect_errors()

    def drain(self, tp: TopicPartition) -> None:
        self.positions.drain(tp)
        self._apply_void()

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        self.positions.regrant(tp, epoch)
        self._apply_void()

    def rewind(self) -> None:
        for partition in self.positions:
            self.positions.rewind(partition.tp)
        self._apply_void()

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self.positions.seek(tp, offset, leader_epoch)
        self._apply_void()

    def seek_to(self, tp: TopicPartition, purpose: LookupPurpose) -> None:
        self.positions.seek_to(tp, purpose)
        self._apply_void()

    def pause(self, tp: TopicPartition) -> None:
        self.positions.pause(tp)
        self.buffer.pause(tp)

    def resume(self, tp: TopicPartition) -> None:
        self.positions.resume(tp)
        self.buffer.resume(tp)

    def update_metadata(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self.positions.on_snapshot(snapshot)
        self._apply_void()

    # ------------------------------------------------------------ what to send

    def poll(self, now: float) -> Ready[FetchAction, Event]:
        """Says what to fetch, to look up and to validate. Called for each response, by the thread that received it."""
        self.needs_plan = False
        self.positions.tick(now)
        lookups = self.positions.lookups(now)
        validations = self.positions.validations(now)
        self._apply_void()
        self._route(now)
        actions: list[FetchAction] = [*lookups, *validations]
        for stream in list(self._streams.values()):
            actions += self._pulls(stream, now)
            if not stream.active and not stream.outstanding:
                del self._streams[stream.broker]
            self._doubt(stream, now)
        if self.positions.refresh_metadata:
            self.positions.refresh_metadata = False
            actions.append(RefreshMetadata())
        events = tuple(self.positions.events)
        self.positions.events.clear()
        return Ready(tuple(actions), events, self._next_wake(now))

    def _route(self, now: float) -> None:
        """Tells the streams about every partition that may have changed its source."""
        dirty, self.positions.dirty = self.positions.dirty, {}
        for tp in dirty:
            partition = self.positions.get(tp)
            target = None if partition is None else self._target(partition, now)
            current = self._source.pop(tp, None)
            if current is not None and current != target and current in self._streams:
                self._streams[current].remove(tp)
            if target is not None:
                self._source[tp] = target
                self._stream(target).add(tp)

    def _target(self, partition: FetchPartition, now: float) -> int | None:
        if not partition.wants_records or partition.retry_at > now or partition.tp in self._full:
            return None
        return partition.source if partition.source >= 0 else None

    def _stream(self, broker: int) -> PullStream:
        stream = self._streams.get(broker)
        if stream is None:
            self._tokens += 1
            stream = self._streams[broker] = PullStream(broker, self._tokens)
        return stream

    def _pulls(self, stream: PullStream, now: float) -> list[PullToSend]:
        issues = []
        while stream.may_pull(self._credit, now):
            size = self._response(stream)
            stream.starved = not self._make_room(stream, size, now)
            if stream.starved:
                break
            wants = []
            for tp in stream.want:
                partition = self.positions.get(tp)
                if partition is not None:
                    wants.append(want_of(partition, self._partition_bytes(stream)))
            wait, followers = self._wait(stream), now >= self._leaders_until
            pull = stream.pull(wants, size, wait, followers)
            issues.append(PullToSend(stream.broker, stream.token, pull))
        return issues

    def _doubt(self, stream: PullStream, now: float) -> None:
        """A stopped broker closes no connection: without this its partitions would wait for the request timeout,
        though another broker leads them by now."""
        if not stream.outstanding:
            stream.doubt_at = float("inf")
        elif now >= stream.doubt_at:
            self.positions.refresh_metadata = True
            stream.doubt_at = now + DOUBT_S
        elif stream.doubt_at == float("inf"):
            stream.doubt_at = now + self._config.fetch_max_wait_ms / 1000 + DOUBT_S

    def _pull_size(self) -> int:
        """So many bytes that a broker's share has room for what is outstanding and what is being consumed."""
        share = self.buffer.share(len(self._streams))
        return max(1, min(self._config.fetch_max_bytes, share // (self._credit + 1)))

    def _partition_bytes(self, stream: PullStream) -> int:
        """Where the user has set no bound, few partitions are asked for more: each request takes the broker about as
        long, whatever it brings."""
        given = self._config.max_partition_fetch_bytes
        return given or max(PARTITION_BYTES, RESPONSE_BYTES // max(1, stream.partitions))

    def _response(self, stream: PullStream) -> int:
        """The bytes that one response has at most, but for a first batch that is larger."""
        return min(self._pull_size(), max(1, stream.partitions) * self._partition_bytes(stream))

    def _wait(self, stream: PullStream) -> int:
        """While a partition is left out because of its backlog, a long poll would keep it waiting; unless it waits for
        what is in hand, which may take much longer."""
        usual = self._config.fetch_max_wait_ms
        crowded = any(
            self.positions.require(tp).source == stream.broker
            for tp in self._full
            if not (self._one_by_one and self.buffer.in_hand(tp))
        )
        return min(SHORT_WAIT_MS, usual) if crowded else usual

    def _room(self, stream: PullStream) -> int:
        return self.buffer.room(stream.broker, len(self._streams)) - stream.reserved

    def _make_room(self, stream: PullStream, need: int, now: float) -> bool:
        if self._room(stream) < need and not stream.outstanding:
            for tp in self.buffer.idle_holders(stream.broker, self._is_paused):
                self.positions.rewind(tp)
            self._apply_void()
        if self._one_by_one:
            self._disperse(stream, need, now)
        return self._room(stream) >= need

    def _disperse(self, stream: PullStream, need: int, now: float) -> None:
        """After a while without room: partitions whose records wait behind those in hand lose them to the others, and are
        asked for again when their turn comes."""
        if self._room(stream) >= need or stream.outstanding:
            stream.crowded_at = float("inf")
            return
        if stream.crowded_at == float("inf"):
            stream.crowded_at = now + CROWDED_S
        others = [tp for tp in (*stream.asked, *stream.want) if not self.buffer.in_hand(tp)]
        if now < stream.crowded_at or not others:
            return
        stream.crowded_at = now + CROWDED_S
        crowding = self.buffer.crowding(stream.broker)
        for tp in crowding:
            self.positions.drop_waiting(tp)
        self._apply_void()
        self._full.update(crowding)
        self._route(now)

    def _is_paused(self, tp: TopicPartition) -> bool:
        partition = self.positions.get(tp)
        return partition is not None and partition.paused

    def _next_wake(self, now: float) -> float | None:
        times = [
            t
            for s in self._streams.values()
            for t in (s.retry_at, s.doubt_at, s.crowded_at)
            if now < t < float("inf")
        ]
        position = self.positions.wakeup()
        return min([*times, position]) if position is not None else min(times, default=None)

    # ------------------------------------------------------------ what came back

    def on_reply(self, issue: PullToSend, reply: FetchReply, records: Sequence[Records], now: float) -> None:
        """The answer to a pull, with the bytes of each of its partitions; answers of one stream come in the order of
        their pulls."""
        stream = self._streams.get(issue.broker)
        if stream is None or stream.token != issue.token:
            return
        stream.outstanding.pop(reply.sequence, None)
        stream.doubt_at = float("inf")
        stream.retry_at = now + throttle_s(reply.throttle_ms / 1000) if reply.throttle_ms else 0.0
        self._count_failure(stream, reply, now)
        response = self.buffer.hold(issue.broker, reply.size)
        for fetched, data in zip(reply.partitions, records, strict=True):
            tp = TopicPartition(fetched.topic, fetched.partition)
            partition = self.positions.get(tp)
            if partition is None or reply.sequence < stream.asked.get(tp, reply.sequence + 1):
                continue
            if fetched.dropped:
                stream.dropped(tp)
                self.positions.touch(tp)
            if self.positions.on_fetched(partition, fetched, issue.broker, now):
                piece = PartitionSlice(memoryview(data).cast("B"), fetched, response)
                self.buffer.add(tp, piece, paused=partition.paused)
                self._check_full(tp, stream)
        stream.busy = any(fetched.size for fetched in reply.partitions)
        self.buffer.settle(response)
        self._collect_errors()
        self._apply_void()

    def _count_failure(self, stream: PullStream, reply: FetchReply, now: float) -> None:
        if not reply.error_code:
            stream.failures = 0
            return
        # A session that the broker lost is opened anew at once; a broker that goes on refusing is left in peace.
        stream.failures += 1
        if stream.failures > 1:
            stream.retry_at = now + self._reconnect_backoff(stream.failures - 1)

    def _check_full(self, tp: TopicPartition, stream: PullStream) -> None:
        half = self.buffer.share(len(self._streams)) // 2
        if self.buffer.buffered(tp) > half and len(stream.asked) > 1:
            self._full.add(tp)
            self.positions.touch(tp)

    def on_pull_failed(self, issue: PullToSend, error: Exception, now: float, *, sent: bool = True) -> None:
        """The source is gone: everything is asked for again, from our own positions. `sent` is False where there
        is no way to that broker yet: in a job that starts, its connection actor may still be in the making.

        A login that is refused is no better the next time: the partitions fail with that error.
        """
        stream = self._streams.get(issue.broker)
        if stream is None or stream.token != issue.token:
            return
        if isinstance(error, AuthenticationError):
            self._refuse(stream, error)
            return
        self._tokens += 1
        fresh = self._streams[issue.broker] = PullStream(issue.broker, self._tokens)
        fresh.failures = stream.failures + 1
        fresh.trouble = str(error)
        fresh.retry_at = now + self._reconnect_backoff(fresh.failures)
        for tp in [*stream.asked, *stream.want]:
            fresh.add(tp)
        self.positions.refresh_metadata = True
        if self.positions.leave_replica(issue.broker):
            # Their leaders would name it again until the cluster notices that it is gone (Java's client goes to and
            # fro meanwhile), so for a time they are not told where we are.
            rest_s = self._replica_rest_s if sent else fresh.retry_at - now
            self._leaders_until = max(self._leaders_until, now + rest_s)

    def _refuse(self, stream: PullStream, error: AuthenticationError) -> None:
        for tp in {*stream.asked, *stream.want}:
            if (partition := self.positions.get(tp)) is not None:
                self.positions.fail(partition, error)
        del self._streams[stream.broker]
        self._collect_errors()

    def on_offset(self, lookup: OffsetLookup, found: tuple[int, int] | KafkaActorsError, now: float) -> None:
        self.positions.on_offset(lookup, found, now)
        self._collect_errors()
        self._apply_void()

    def on_epoch_end(
        self, tp: TopicPartition, version: int, found: tuple[int, int] | KafkaActorsError, now: float
    ) -> None:
        self.positions.on_epoch_end(tp, version, found, now)
        self._collect_errors()
        self._apply_void()

    # ------------------------------------------------------------ handing out

    def take(self) -> FetchedBytes | None:
        """The next records to hand out, fair over partitions; None while there are none.

        Raises the error of a failed partition once everything before it is consumed; then, call after call, in
        turn with the records of other partitions.
        """
        self._collect_errors()
        failed = next((p for p in self._to_raise if not self._has_records(p)), None)
        if failed is not None and failed.error is not None and not (self._raised and self.buffer.ready):
            self._raised = True
            raise failed.error.with_traceback(None)  # again and again: it must not grow
        self._raised = False
        item = self.buffer.take()
        if item is None:
            return None
        partition = self.positions.require(item.partition)
        partition.delivered = item.next_offset
        self._less_waits(item.partition)
        return item

    def _less_waits(self, tp: TopicPartition) -> None:
        """One that had so much that others needed the room is asked for again when little of it is left."""
        if tp in self._full and self.buffer.buffered(tp) <= self.buffer.share(len(self._streams)) // 4:
            self._full.discard(tp)
            self.positions.touch(tp)
            self.needs_plan = True

    def take_more(self) -> FetchedBytes | None:
        """As `take`, ahead of what was taken before: None where something else would come first by then."""
        self._collect_errors()
        return None if self._to_raise or self.buffer.newcomer else self.take()

    @property
    def has_something(self) -> bool:
        """Whether `take` may return or raise something."""
        return self.buffer.ready or bool(self._to_raise or self.positions.failed)

    def consumed(self, item: FetchedBytes, next_offset: int | None = None) -> bool:
        """The user has all records of `item` below `next_offset`, by default all. False if the position was moved
        meanwhile: then nothing is to be made of these records any more, and least of all a commit."""
        partition = self.positions.get(item.partition)
        if not item.valid or partition is None:
            return False
        next_offset = item.next_offset if next_offset is None else next_offset
        self.positions.consumed(partition, next_offset, item.leader_epoch)
        released = self.buffer.consumed(item.partition, next_offset)
        if self._one_by_one and not self.buffer.in_hand(item.partition):
            self._less_waits(item.partition)
            self.needs_plan |= self.buffer.ready  # what comes next of it may be taken now
        if partition.state is FetchState.VALIDATING or (released and any(map(self._may_feed, item.brokers))):
            self.needs_plan = True
        return True

    def put_back(self, tp: TopicPartition) -> None:
        """What was handed out of a partition and is not consumed waits again, after what waits of others."""
        partition = self.positions.get(tp)
        if partition is not None and not partition.draining:
            self.buffer.put_back(tp, partition.position, paused=partition.paused)
            partition.delivered = partition.position

    def _may_feed(self, broker: int) -> bool:
        """Whether a stream that had no room for another pull has it now, or can have that of paused partitions."""
        stream = self._streams.get(broker)
        if stream is None or not stream.starved:
            return False
        if self._room(stream) >= self._response(stream):
            return True
        return not stream.outstanding and bool(self.buffer.idle_holders(broker, self._is_paused))

    def bad_batch(self, item: FetchedBytes, error: RecordError) -> int | None:
        """A batch of `item` can't be read; everything before it was handed out. `on_bad_batch` decides. Returns where it
        goes on, if the batch is skipped or fetched again."""
        partition = self.positions.get(item.partition)
        if not item.valid or partition is None:
            return None
        following = self._behind_bad_batch(partition, item, error) if self._on_bad_batch == "skip" else None
        if following is not None:
            self.positions.skip_to(partition, following)
        else:
            self.buffer.drop(item.partition, in_hand=True)
            partition.delivered = partition.fetched = partition.position
            self.positions.fail(partition, error if self._on_bad_batch == "fail" else _not_skipped(error))
        self._collect_errors()
        self._apply_void()
        self.needs_plan = True
        return following

    def _behind_bad_batch(
        self, partition: FetchPartition, item: FetchedBytes, error: RecordError
    ) -> int | None:
        """Where "skip" goes on; None where that can't be known."""
        skipped = error.next_offset
        if skipped is None:
            # Perhaps only because the response ends with it: the next one begins with it.
            return error.offset if error.offset > item.fetch_offset else None
        topic, number = item.partition
        self.positions.events.append(BadBatchSkipped(topic, number, error.offset, skipped, error.kind))
        # The epoch of what was left out isn't known; that of the batch before may have ended in front of it.
        item.leader_epoch = partition.position_epoch = UNKNOWN
        return skipped

    def end_reached(self, tp: TopicPartition) -> bool:
        """Whether a bounded partition was consumed up to its end offset."""
        partition = self.positions.require(tp)
        return partition.end_offset is not None and partition.position >= partition.end_offset

    def standings(
        self, partitions: Iterable[TopicPartition], now: float
    ) -> dict[TopicPartition, FetchProgress]:
        """Where partitions stand."""
        committed = self.positions.read_committed
        found = {}
        for tp in partitions:
            partition = self.positions.require(tp)
            found[tp] = FetchProgress(
                partition.known_position, partition.end(committed), self._reason(partition, now)
            )
        return found

    def reason(self, tp: TopicPartition, now: float) -> str:
        """Why no records of this partition are fetched, for people; empty while they are."""
        return self._reason(self.positions.require(tp), now)

    def _reason(self, partition: FetchPartition, now: float) -> str:
        tp, own = partition.tp, partition.reason(now)
        stream = self._streams.get(self._source.get(tp, -1))
        if own or stream is None:
            return own
        if stream.retry_at > now:
            return f"broker {stream.broker}: {stream.trouble or 'throttled'}"
        if stream.starved or tp in self._full:
            return "buffer full"
        return "open transaction" if partition.waits_for_a_transaction(self.positions.read_committed) else ""

    def _has_records(self, partition: FetchPartition) -> bool:
        return self.buffer.buffered(partition.tp) > 0 or self.buffer.in_hand(partition.tp)

    @property
    def _to_raise(self) -> list[FetchPartition]:
        """Failed partitions, but for those that the user has paused."""
        return [p for p in self._errors if not p.paused]

    def _collect_errors(self) -> None:
        failed, self.positions.failed = self.positions.failed, []
        self._errors = [
            p
            for p in [*self._errors, *failed]
            if p.state is FetchState.FAILED and self.positions.get(p.tp) is p
        ]

    def _apply_void(self) -> None:
        void, self.positions.void = self.positions.void, {}
        for tp, in_hand in void.items():
            self.buffer.drop(tp, in_hand=in_hand)
            self._full.discard(tp)
            self.needs_plan = True


def _not_skipped(error: RecordError) -> RecordError:
    why = f'{error.message}; no sound batch behind it says where on_bad_batch="skip" could go on: seek behind it'
    if error.cut_off:
        why += ", or raise max_partition_fetch_bytes: the batch behind it doesn't fit into the response"
    return type(error)(error.topic, error.partition, error.offset, None, why, error.kind)


def _backoff(initial_ms: float, maximum_ms: float, rand: Callable[[], float]) -> Callable[[int], float]:
    """Seconds to wait after so many failures in a row."""
    return partial(exponential_backoff, initial=initial_ms / 1000, maximum=maximum_ms / 1000, rand=rand)
