"""The fetching of one worker or consumer as a whole: partitions in, pulls out, records handed out in turn.

Theory of operation. Arrives: assignments, seeks and pauses (`assign` … `resume`), metadata, answers to pulls (`on_reply`,
`on_pull_failed`) and to look-ups (`on_offset`, `on_epoch_end`), and the user's progress (`take`, `consumed`, `put_back`,
`bad_batch`). No IO and no clock: `kafka_actors.fetch.fetch_driver` has both, and calls with a lock held.

Decided: `poll` says which pulls to send, which offsets to look up, whether metadata is needed, and when to poll again. It has to
be called after each change; `partitions.needs_plan` says so where a call of the user made one.

The parts, each with a module of its own:

- `partitions`, a `PartitionTable`: where each partition stands, and which changes are due. Records flow through three offsets of
  a partition: `fetched` when an answer is taken, `delivered` when it is handed out, `position` when it is consumed.
- `PositionLookups` for partitions without a valid position, `FetchResults` for the answers to fetches.
- `PullStreams`: which partitions are asked of which broker. `Fairness`: how much of each.
- `buffer`, a `Buffer`: records that wait to be handed out, and the memory of responses.

A broker that fails costs its stream only: a new one begins after a backoff with the partitions' own positions, and metadata is
asked for. One that is silent beyond its long poll (`SILENT_S`) may be stopped, which closes no connection, so metadata is asked
for then, too: its partitions may be led by another by now. A follower that fails (KIP-392) is left for the leader, and leaders
are not told where we are for a while: they would name it again until the cluster notices.

Errors of partitions come out of `take`, in turn with the records of others, once everything before them is consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.base.machine import Ready, earliest
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.cluster.snapshot import ClusterSnapshot
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import AuthenticationError, KafkaActorsError, RecordError
from kafka_actors.events import BadBatchSkipped, Event
from kafka_actors.fetch.messages import Epoch, FetchReply, Records
from kafka_actors.types import TopicPartition

from .buffer import Buffer, FetchedBytes, PartitionSlice
from .fairness import Fairness
from .fetch_results import FetchResults
from .partition_state import UNKNOWN, FetchPartition, FetchProgress, FetchState, LookupPurpose, PartitionStart
from .partition_table import PartitionTable
from .positions import EpochValidation, PositionLookups
from .pull_stream import EndPull, PullStream, PullStreams, PullToSend, want_of
from .resets import OffsetLookup, ResetPolicy

TOGETHER_BYTES = 4 * 1024 * 1024  # of one partition, handed out at once: more makes nothing faster

FetchAction = PullToSend | EndPull | OffsetLookup | EpochValidation | RefreshMetadata


class FetchMachine:
    """Plans the fetching of all partitions of one fetcher.

    `credit`: pulls outstanding per broker while records flow. `budget`: bytes of responses in memory (0:
    `worker_buffer_bytes`). `together`: bytes of a partition handed out at once. `one_by_one`: see `Buffer`.
    """

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
        self._reconnect_backoff = _backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rand)
        self._credit = credit
        self._on_bad_batch = config.on_bad_batch
        self._max_wait_s = config.fetch_max_wait_ms / 1000
        self._replica_rest_s = config.metadata_max_age_ms / 1000
        self._one_by_one = one_by_one
        policy = ResetPolicy(config.auto_offset_reset, config.on_data_loss)
        self.partitions = PartitionTable(
            policy,
            _backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rand),
            read_committed=config.isolation_level == "read_committed",
            replica_lifetime_s=config.metadata_max_age_ms / 1000,
        )
        self._positions = PositionLookups(self.partitions, policy)
        self._results = FetchResults(self.partitions, self._positions)
        self.buffer = Buffer(budget or config.worker_buffer_bytes, together, one_by_one=one_by_one)
        self._streams = PullStreams(self.partitions)
        self._fairness = Fairness(
            config, self.partitions, self.buffer, self._streams, credit=credit, one_by_one=one_by_one
        )
        self._raised = False  # the last `take` raised: records of others come next
        self._leaders_until = 0.0  # a follower failed: until then leaders are not to name one
        self._snapshot: ClusterSnapshot | None = None

    # ------------------------------------------------------------ assignment and the user's calls

    def assign(self, tp: TopicPartition, start: PartitionStart) -> None:
        """Adds a partition. Under an epoch that it has already nothing changes."""
        known = self.partitions.get(tp)
        if known is not None and known.epoch != start.epoch:
            self.buffer.forget(tp)
        self.partitions.assign(tp, start, self._snapshot)
        self._fairness.discard()

    def revoke(self, tp: TopicPartition) -> None:
        """Removes a partition, its position and its records."""
        self.partitions.revoke(tp)
        self._fairness.discard()
        self.buffer.forget(tp)
        self._fairness.left_out.discard(tp)

    def drain(self, tp: TopicPartition) -> None:
        """Stops handing a partition out; its position stays readable."""
        self.partitions.drain(tp)
        self._fairness.discard()

    def regrant(self, tp: TopicPartition, epoch: Epoch) -> None:
        """Keeps a partition under a new epoch, from its own position on."""
        self.partitions.regrant(tp, epoch)
        self._fairness.discard()

    def rewind(self) -> None:
        """Discards all records that are not consumed; they are fetched again."""
        for partition in self.partitions:
            self.partitions.rewind(partition.tp)
        self._fairness.discard()

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Moves the position of a partition to `offset`."""
        self.partitions.seek(tp, offset, leader_epoch)
        self._fairness.discard()

    def seek_to(self, tp: TopicPartition, purpose: LookupPurpose) -> None:
        """Moves the position of a partition to an end of its log."""
        self.partitions.seek_to(tp, purpose)
        self._fairness.discard()

    def pause(self, tp: TopicPartition) -> None:
        """Fetches and hands out nothing of a partition until `resume`; records that are there stay."""
        self.partitions.pause(tp)
        self.buffer.pause(tp)

    def resume(self, tp: TopicPartition) -> None:
        """Ends `pause`."""
        self.partitions.resume(tp)
        self.buffer.resume(tp)

    def update_metadata(self, snapshot: ClusterSnapshot) -> None:
        """Takes over new metadata."""
        self._snapshot = snapshot
        self.partitions.on_snapshot(snapshot)
        self._fairness.discard()

    # ------------------------------------------------------------ what to send

    def poll(self, now: float) -> Ready[FetchAction, Event]:
        """Returns what to do now. Pulls and look-ups in it count as sent. Called for each response, in the thread it came in."""
        self.partitions.needs_plan = False
        self.partitions.tick(now)
        actions: list[FetchAction] = []
        if self.partitions.watched:
            actions += [*self._positions.lookups(now), *self._positions.validations(now)]
        self._fairness.discard()
        self._streams.route(now, self._fairness.left_out)
        for stream in list(self._streams.by_broker.values()):
            actions += [*self._pulls(stream, now), *stream.end_pull(self._fairness.wait_ms(stream))]
            if not stream.active and not stream.outstanding:
                self._streams.end(stream)
            if stream.is_silent(now, self._max_wait_s):
                self.partitions.refresh_metadata = True
        if self.partitions.refresh_metadata:
            self.partitions.refresh_metadata = False
            actions.append(RefreshMetadata())
        events: tuple[Event, ...] = ()
        if self.partitions.events:
            events, self.partitions.events = tuple(self.partitions.events), []
        wake = earliest((self._streams.wakeup(now), self.partitions.wakeup()))
        return Ready(tuple(actions), events, wake)

    @property
    def needs_poll(self) -> bool:
        """Whether an answer or a call of the user has changed what is to be sent."""
        return self.partitions.needs_plan or bool(self.partitions.dirty)

    def _pulls(self, stream: PullStream, now: float) -> list[PullToSend]:
        pulls = []
        while stream.may_pull(self._credit, now):
            size = self._fairness.response_bytes(stream)
            stream.starved = not self._fairness.make_room(stream, size, now)
            if stream.starved:
                break
            wants = []
            for tp in stream.to_add:
                partition = self.partitions.get(tp)
                if partition is not None:
                    wants.append(want_of(partition, self._fairness.partition_bytes(stream)))
            wait, followers = self._fairness.wait_ms(stream), now >= self._leaders_until
            pulls.append(stream.pull(wants, size, wait, followers))
        return pulls

    # ------------------------------------------------------------ answers

    def on_reply(self, sent: PullToSend, reply: FetchReply, records: Sequence[Records], now: float) -> None:
        """Takes the answer to a pull, with the bytes of each partition; those of one stream come in the order of the pulls."""
        stream = self._streams.by_broker.get(sent.broker)
        if stream is None or stream.token != sent.token:
            return
        stream.answered(reply, now, self._reconnect_backoff)
        stream.wait_ms = sent.pull.max_wait_ms
        response = self.buffer.hold(sent.broker, reply.size)
        for fetched, data in zip(reply.partitions, records, strict=True):
            tp = TopicPartition(fetched.topic, fetched.partition)
            partition = self.partitions.get(tp)
            if partition is None or reply.sequence < stream.requested.get(tp, reply.sequence + 1):
                continue
            if fetched.dropped:
                stream.dropped(tp)
                self.partitions.touch(tp)
            if self._results.on_fetched(partition, fetched, sent.broker, now):
                piece = PartitionSlice(memoryview(data).cast("B"), fetched, response)
                self.buffer.add(tp, piece, paused=partition.paused)
                self._fairness.buffered(tp, stream)
        self.buffer.settle(response)
        self._fairness.discard()

    def on_pull_failed(self, failed: PullToSend, error: Exception, now: float, *, sent: bool = True) -> None:
        """Begins the stream of a broker anew after a backoff. A refused login fails its partitions: it is no better the next
        time.

        `sent` is False where there is no way to that broker yet: in a job that starts, its connection actor may still be in
        the making.
        """
        stream = self._streams.by_broker.get(failed.broker)
        if stream is None or stream.token != failed.token:
            return
        if isinstance(error, AuthenticationError):
            self._refuse(stream, error)
            return
        fresh = self._streams.restart(stream)
        fresh.trouble = str(error)
        fresh.retry_at = now + self._reconnect_backoff(fresh.failures)
        self.partitions.refresh_metadata = True
        if self.partitions.leave_replica(failed.broker):
            # Java's client goes to and fro between leader and follower meanwhile.
            rest_s = self._replica_rest_s if sent else fresh.retry_at - now
            self._leaders_until = max(self._leaders_until, now + rest_s)

    def _refuse(self, stream: PullStream, error: AuthenticationError) -> None:
        for tp in {*stream.requested, *stream.to_add}:
            if (partition := self.partitions.get(tp)) is not None:
                self.partitions.fail(partition, error)
        self._streams.end(stream)

    def on_offset(self, lookup: OffsetLookup, found: tuple[int, int] | KafkaActorsError, now: float) -> None:
        """Takes the answer to a look-up: see `PositionLookups.on_offset`."""
        self._positions.on_offset(lookup, found, now)
        self._fairness.discard()

    def on_epoch_end(
        self, tp: TopicPartition, version: int, found: tuple[int, int] | KafkaActorsError, now: float
    ) -> None:
        """Takes the answer to a validation: see `PositionLookups.on_epoch_end`."""
        self._positions.on_epoch_end(tp, version, found, now)
        self._fairness.discard()

    # ------------------------------------------------------------ handing out

    def take(self) -> FetchedBytes | None:
        """Returns the next records to hand out, fair over partitions; None while there are none.

        Raises the error of a failed partition once everything before it is consumed; then, call after call, in
        turn with the records of other partitions.
        """
        if failures := self.partitions.failures():
            failed = next((p for p in failures if not self._has_records(p)), None)
            if failed is not None and failed.error is not None and not (self._raised and self.buffer.ready):
                self._raised = True
                raise failed.error.with_traceback(None)  # again and again: it must not grow
        self._raised = False
        item = self.buffer.take()
        if item is None:
            return None
        partition = self.partitions.require(item.partition)
        partition.delivered = item.next_offset
        self._fairness.taken(item.partition)
        return item

    def take_more(self) -> FetchedBytes | None:
        """Returns records as `take` does, ahead of their turn; None where others would come first by then."""
        return None if self.buffer.newcomer or self.partitions.failures() else self.take()

    @property
    def has_something(self) -> bool:
        """Whether `take` may return or raise something."""
        return self.buffer.ready or bool(self.partitions.failures())

    def consumed(self, item: FetchedBytes, next_offset: int | None = None) -> bool:
        """Moves the position behind the records of `item` below `next_offset`, by default all.

        False if the position was moved meanwhile: these records must not be used any more, least of all for a commit.
        """
        partition = self.partitions.get(item.partition)
        if not item.valid or partition is None:
            return False
        next_offset = item.next_offset if next_offset is None else next_offset
        self.partitions.consumed(partition, next_offset, item.leader_epoch)
        released = self.buffer.consumed(item.partition, next_offset)
        if self._one_by_one and not self.buffer.in_hand(item.partition):
            self._fairness.taken(item.partition)
            self.partitions.needs_plan |= self.buffer.ready  # its next records may be taken now
        if partition.state is FetchState.VALIDATING or (released and self._fairness.may_pull_again(item)):
            self.partitions.needs_plan = True
        return True

    def put_back(self, tp: TopicPartition) -> None:
        """Has the records of a partition that were handed out and are not consumed wait again, after those of others."""
        partition = self.partitions.get(tp)
        if partition is not None and not partition.draining:
            self.buffer.put_back(tp, partition.position, paused=partition.paused)
            partition.delivered = partition.position

    def bad_batch(self, item: FetchedBytes, error: RecordError) -> int | None:
        """Skips a batch of `item` that can't be read, or fails its partition, as `on_bad_batch` says.

        Everything before the batch was handed out. Returns where reading goes on if the batch is skipped or fetched again.
        """
        partition = self.partitions.get(item.partition)
        if not item.valid or partition is None:
            return None
        following = self._behind_bad_batch(partition, item, error) if self._on_bad_batch == "skip" else None
        if following is not None:
            self.partitions.skip_to(partition, following)
        else:
            self.buffer.drop(item.partition, in_hand=True)
            partition.delivered = partition.fetched = partition.position
            self.partitions.fail(partition, error if self._on_bad_batch == "fail" else _not_skipped(error))
        self._fairness.discard()
        self.partitions.needs_plan = True
        return following

    def _behind_bad_batch(
        self, partition: FetchPartition, item: FetchedBytes, error: RecordError
    ) -> int | None:
        """Returns where "skip" goes on; None where that can't be known."""
        skipped = error.next_offset
        if skipped is None:
            # Perhaps only because the response ends with it: the next one begins with it.
            return error.offset if error.offset > item.fetch_offset else None
        topic, number = item.partition
        self.partitions.events.append(BadBatchSkipped(topic, number, error.offset, skipped, error.kind))
        # The epoch of the batch that is left out isn't known; that of the batch before may have ended in front of it.
        item.leader_epoch = partition.position_epoch = UNKNOWN
        return skipped

    def _has_records(self, partition: FetchPartition) -> bool:
        return self.buffer.buffered(partition.tp) > 0 or self.buffer.in_hand(partition.tp)

    # ------------------------------------------------------------ progress

    def progress(
        self, partitions: Iterable[TopicPartition], now: float
    ) -> dict[TopicPartition, FetchProgress]:
        """Returns position, end of the log, what holds fetching up, and the position's leader epoch, for each of these partitions."""
        committed = self.partitions.read_committed
        found = {}
        for tp in partitions:
            partition = self.partitions.require(tp)
            end, reason = partition.end(committed), self._reason(partition, now)
            found[tp] = FetchProgress(partition.known_position, end, reason, partition.position_epoch)
        return found

    def reason(self, tp: TopicPartition, now: float) -> str:
        """Returns why no records of this partition are fetched, for people; empty while they are."""
        return self._reason(self.partitions.require(tp), now)

    def _reason(self, partition: FetchPartition, now: float) -> str:
        own, stream = partition.reason(now), self._streams.of(partition.tp)
        if own or stream is None:
            return own
        if stream.retry_at > now:
            return f"broker {stream.broker}: {stream.trouble or 'throttled'}"
        if stream.starved or partition.tp in self._fairness.left_out:
            return "buffer full"
        if stream.trouble:
            return f"broker {stream.broker}: {stream.trouble}"
        return "open transaction" if partition.waits_for_a_transaction(self.partitions.read_committed) else ""


def _not_skipped(error: RecordError) -> RecordError:
    why = f'{error.message}; no sound batch behind it says where on_bad_batch="skip" could go on: seek behind it'
    if error.cut_off:
        why += ", or raise max_partition_fetch_bytes: the batch behind it doesn't fit into the response"
    return type(error)(error.topic, error.partition, error.offset, None, why, error.kind)


def _backoff(initial_ms: float, maximum_ms: float, rand: Callable[[], float]) -> Callable[[int], float]:
    """Returns a function that gives the seconds to wait after so many failures in a row."""
    return partial(exponential_backoff, initial=initial_ms / 1000, maximum=maximum_ms / 1000, rand=rand)
