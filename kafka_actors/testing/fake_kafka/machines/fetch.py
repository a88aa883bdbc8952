"""Fetch: reading, sessions, and long polls.

Theory of operation. Arrives: a request with partitions, positions and limits; later the news that partitions
have changed, or the end of the time that the client waits. Decided: for each partition its records or an
error, and when the response goes out.

- A request reads its partitions in order, within its limits: the first batch comes whole, whatever its size
  (KIP-74); the last one may be cut, and clients ask for it again.
- Where it finds fewer than `min_bytes`, no error, and may wait, it becomes a long poll. That is looked at
  again when one of its partitions has changed (`recheck`), and ends when there is enough, an error is to be
  told, or its time is over; then all is read once more, since other partitions may have got records, too.
- The leader serves, and from version 11 on each replica: all replicas share one log, so followers are never
  behind (KIP-392).
- A client that names the epoch of its last record learns where the log has left it since an unclean election
  (KIP-595).
- Readers of committed transactions get no batch from the last stable offset on, and the list of aborted
  transactions in what they get; they leave those out themselves.
- Partitions that the cluster doesn't know at all stand at the end of the response and don't keep it from
  waiting.
- Beyond its quota a client gets no records and is told for how long; what its session counts as told doesn't
  change by that.
- From version 16 on an error of leadership comes with the present leader and its address (KIP-951).

What of that goes into the response is the session's decision (`fetch_sessions`): only what is news to the
client.

Source: `KafkaApis.handleFetchRequest`, `ReplicaManager.fetchMessages` and `readFromLog`, `DelayedFetch`;
KIP-74, KIP-227, KIP-320, KIP-392, KIP-516, KIP-595, KIP-951; quotas: KIP-13, KIP-219.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_actors import errors
from kafka_actors.protocol import ZERO_UUID, ApiKey, FetchRequest, FetchResponse
from kafka_actors.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

from .calls import BrokerCall
from .cluster_state import ClusterState, FakePartition, check_epoch
from .error_answers import Refused
from .fetch_sessions import BrokerFetchSessions, FetchContext, PartitionKey
from .timers import BrokerTimer, cancel

_READ_COMMITTED = 1
_HINTED = {errors.NotLeaderOrFollowerError.code, errors.FencedLeaderEpochError.code}
Found = list[tuple[PartitionKey, PartitionData]]


class _LongPoll:
    """A Fetch that waits for data."""

    def __init__(
        self, call: BrokerCall, context: FetchContext, keys: dict[PartitionKey, FetchPartition]
    ) -> None:
        self.call = call
        self.context = context
        self.keys = keys
        self.places: set[tuple[str, int]] = set()
        self.timer: BrokerTimer | None = None


class FetchHandlers:
    """Answers Fetch, at once or later."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._sessions: dict[int, BrokerFetchSessions] = {}
        self._waiting: list[_LongPoll] = []
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {ApiKey.FETCH: self._fetch}

    def restarted(self, node_id: int) -> None:
        """Forgets the sessions of a broker, and the long polls in its hand."""
        self._sessions.pop(node_id, None)
        for poll in [p for p in self._waiting if p.call.node_id == node_id]:
            self._drop(poll)

    def recheck(self) -> None:
        """Looks at the long polls again whose partitions have changed."""
        changed, self._state.changed = self._state.changed, set()
        if changed:
            for poll in [p for p in self._waiting if not p.places.isdisjoint(changed)]:
                if not poll.call.link.open:
                    self._drop(poll)
                elif self._is_ready(poll):
                    self._end(poll)

    # ---------------------------------------------------------------- the request

    def _fetch(self, call: BrokerCall) -> FetchResponse | None:
        """Takes the request into its session, which says what is to be read; then answers, or makes it a long
        poll.
        """
        request: FetchRequest = call.request
        uses_ids = call.version >= 13
        wanted: dict[PartitionKey, FetchPartition] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                wanted[self._key(topic.topic, topic.topic_id, partition.partition, uses_ids)] = partition
        forgotten = [
            self._key(topic.topic, topic.topic_id, index, uses_ids)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        sessions = self._sessions.setdefault(call.node_id, BrokerFetchSessions(self._state))
        epoch = request.session_epoch if call.version >= 7 else -1
        try:
            context = sessions.context(request.session_id, epoch, wanted, forgotten, uses_ids=uses_ids)
        except Refused as refused:
            return FetchResponse(error_code=refused.code)
        return self._begin(call, context)

    def _key(self, name: str, topic_id: Any, index: int, uses_ids: bool) -> PartitionKey:
        return ("", topic_id, index) if uses_ids else (name, ZERO_UUID, index)

    def _begin(self, call: BrokerCall, context: FetchContext) -> FetchResponse | None:
        """Reads, and answers at once where there is enough, an error, or no time to wait; else waits."""
        request: FetchRequest = call.request
        found, erroneous = self._read_all(call, context)
        size = sum(len(data.records or b"") for _, data in found)
        at_once = (
            request.max_wait_ms <= 0
            or not found
            or size >= self._min_bytes(call)
            or any(data.error_code or data.diverging_epoch != EpochEndOffset() for _, data in found)
        )
        if at_once:
            return self._within_quota(call, context, found + erroneous)
        keys = {key: context.wanted[key] for key, _ in found}
        poll = _LongPoll(call, context, keys)
        poll.places = {(self._name(context, key), key[2]) for key in keys}
        poll.timer = self._state.after(request.max_wait_ms, lambda: self._end(poll))
        self._waiting.append(poll)
        return None

    def _min_bytes(self, call: BrokerCall) -> int:
        least: int = min(call.request.min_bytes, self._max_bytes(call))
        return least

    def _max_bytes(self, call: BrokerCall) -> int:
        most: int = min(call.request.max_bytes, self._state.settings.fetch_max_bytes)
        return self._state.quotas.most_read(call.client_id, most)

    # ---------------------------------------------------------------- long polls

    def _is_ready(self, poll: _LongPoll) -> bool:
        """Whether there is enough for it, or an error to be told."""
        available = 0
        for key, wanted in poll.keys.items():
            try:
                partition = self._partition(poll.call, poll.context, key, wanted)
            except Refused:
                return True
            log = partition.log
            if (
                wanted.fetch_offset > log.end_offset
                or self._diverging(poll.call, partition, wanted) is not None
            ):
                return True
            committed = poll.call.request.isolation_level == _READ_COMMITTED
            available += min(
                log.bytes_from(wanted.fetch_offset, committed=committed), wanted.partition_max_bytes
            )
        return available >= self._min_bytes(poll.call)

    def _end(self, poll: _LongPoll) -> None:
        self._drop(poll)
        found, erroneous = self._read_all(poll.call, poll.context)
        poll.call.respond(self._within_quota(poll.call, poll.context, found + erroneous))

    def _drop(self, poll: _LongPoll) -> None:
        self._waiting.remove(poll)
        cancel(poll.timer)

    # ---------------------------------------------------------------- reading

    def _read_all(self, call: BrokerCall, context: FetchContext) -> tuple[Found, Found]:
        """Reads within the request's limits; apart from what was read stands what brokers don't even have in their metadata."""
        left, first = self._max_bytes(call), True
        found: Found = []
        erroneous: Found = []
        for key, partition in context.wanted.items():
            name = self._name(context, key)
            try:
                self._state.partition(name, key[2])
            except Refused as refused:
                code = refused.code if name else errors.UnknownTopicIdError.code
                erroneous.append((key, PartitionData(key[2], code, high_watermark=-1, records=b"")))
                continue
            data = self._read(call, context, key, partition, left, first)
            first = first and not data.records
            left = max(0, left - len(data.records or b""))
            found.append((key, data))
        return found, erroneous

    def _read(
        self,
        call: BrokerCall,
        context: FetchContext,
        key: PartitionKey,
        wanted: FetchPartition,
        left: int,
        first: bool,
    ) -> PartitionData:
        """Reads one partition within what is left of the request's limits.

        `first`: nothing was read before it, so that a batch comes whole, whatever its size.
        """
        committed = call.request.isolation_level == _READ_COMMITTED
        aborted: list[AbortedTransaction] | None = [] if committed else None
        try:
            partition = self._partition(call, context, key, wanted)
            log = partition.log
            diverging = self._diverging(call, partition, wanted)
            records = b""
            if diverging is None:
                limit = min(wanted.partition_max_bytes, left)
                records = log.read(wanted.fetch_offset, limit, at_least_one=first, committed=committed)
                end = log.stable_offset if committed else log.end_offset
                if not records and limit > 0 and wanted.fetch_offset < end:
                    aborted = None  # Kafka drops them with the batch that does not fit
                elif committed and wanted.fetch_offset < end:
                    found = log.aborted(wanted.fetch_offset, len(records))
                    aborted = [AbortedTransaction(txn.producer_id, txn.first_offset) for txn in found]
        except Refused as refused:
            return PartitionData(
                key[2],
                refused.code,
                high_watermark=-1,
                aborted_transactions=None,
                current_leader=self._hint(call, self._name(context, key), key[2], refused.code),
                records=b"",
            )
        return PartitionData(
            key[2],
            high_watermark=log.end_offset,
            last_stable_offset=log.stable_offset,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging or EpochEndOffset(),
            aborted_transactions=aborted if diverging is None else None,
            records=records,
        )

    def _name(self, context: FetchContext, key: PartitionKey) -> str:
        """The name of a partition's topic, also of one that a session knew by its id; empty where it is not known."""
        name, topic_id, _ = key
        if topic_id == ZERO_UUID:
            return name
        if key not in context.names and (topic := self._state.topic_by_id(topic_id)) is not None:
            context.names[key] = topic.name
        return context.names.get(key, "")

    def _partition(
        self, call: BrokerCall, context: FetchContext, key: PartitionKey, wanted: FetchPartition
    ) -> FakePartition:
        """Returns the partition where this broker may serve it. Raises `Refused`."""
        name = self._name(context, key)
        partition = self._state.partition(name, key[2])
        if key[1] not in (ZERO_UUID, self._state.topics[name].topic_id):
            raise Refused(errors.InconsistentTopicIdError)
        serves = partition.leader == call.node_id or (
            call.version >= 11 and partition.leader >= 0 and call.node_id in partition.replicas
        )
        if not serves:
            raise Refused(errors.NotLeaderOrFollowerError)
        check_epoch(partition, wanted.current_leader_epoch)
        return partition

    def _diverging(
        self, call: BrokerCall, partition: FakePartition, wanted: FetchPartition
    ) -> EpochEndOffset | None:
        """Finds where the log left the one that the client has read (KIP-595); None where it did not. Raises `Refused`."""
        if wanted.last_fetched_epoch < 0 or call.version < 12:
            return None
        epoch, end = partition.log.end_of_epoch(wanted.last_fetched_epoch)
        if epoch < 0 or end < 0 or wanted.fetch_offset < partition.log.start_offset:
            raise Refused(errors.OffsetOutOfRangeError)
        if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
            return EpochEndOffset(epoch, end)
        return None

    # ---------------------------------------------------------------- the response

    def _hint(self, call: BrokerCall, name: str, index: int, code: int) -> LeaderIdAndEpoch:
        if call.version < 16 or code not in _HINTED:
            return LeaderIdAndEpoch()
        partition = self._state.partition(name, index)
        return LeaderIdAndEpoch(partition.leader, partition.leader_epoch)

    def _within_quota(self, call: BrokerCall, context: FetchContext, found: Found) -> FetchResponse:
        """The response, or an empty one where the client has read more than it may."""
        size = sum(len(data.records or b"") for _, data in found)
        call.throttle_ms = self._state.quotas.read(call.node_id, call.client_id, size, self._state.now)
        if not call.throttle_ms:
            return self._response(call, context, found)
        within = call.version >= 7 and call.request.session_epoch > 0
        return FetchResponse(session_id=call.request.session_id if within else 0)

    def _response(self, call: BrokerCall, context: FetchContext, found: Found) -> FetchResponse:
        """Makes the response of what the session tells. Partitions of a topic that stand together share one entry."""
        try:
            session_id, told = context.finish(found)
        except Refused as refused:
            return FetchResponse(error_code=refused.code)
        topics: list[FetchableTopicResponse] = []
        for (name, topic_id, _), data in told:
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, topic_id):
                topics.append(FetchableTopicResponse(name, topic_id, []))
            topics[-1].partitions.append(data)
        hinted = {data.current_leader.leader_id for _, data in told} if call.version >= 16 else set()
        nodes = [self._state.nodes[i] for i in sorted(hinted) if i in self._state.nodes]
        return FetchResponse(
            session_id=session_id,
            responses=topics,
            node_endpoints=[NodeEndpoint(n.node_id, n.host, n.port, n.rack) for n in nodes],
        )
