"""The connection side of fetching: one incremental fetch session with one broker (KIP-227).

Theory of operation. Arrives: pulls of the worker side, which add, change and remove partitions (`apply`), and the broker's
responses (`digest`). The session keeps a fetch offset per partition and advances it by the records that came, so the next
Fetch can be sent while the worker still decodes the last one.

Decided: the content of the next Fetch (`request`). The broker keeps the list of partitions too, under a session id; a request
then names only the partitions that changed, with a session epoch that counts up by one. A *full* request, of session epoch 0,
names every partition and opens a session anew. It is sent

- at the beginning, and after `reset` for a new connection;
- after any error of a response as a whole: an unknown session id is not sent again, any other session is closed by the request;
- when partitions with topic ids and without are mixed, which one session can't do (KIP-516): it falls back to version 12;
- when the response to a full request lacks a partition: the broker's list isn't the one that was sent;
- each time, while the broker has no room for a session and answers with the session id 0.

Every other response lists only partitions with news, so one that is missing there has nothing new. A partition that a request
doesn't name keeps its place in the broker's list, with the offset that was sent last.

Requests and responses take turns strictly. A request is never repeated: after a lost answer the epochs of the two sides differ,
so the owner gives up the connection with its session, and the worker side begins a stream with pull 0. Java: `FetchSessionHandler`.

A partition whose answer is not records (`messages.without_records`), or records that lead nowhere, is taken out of the session.
The worker side decides what to do, and requests it again.

Brokers fill a response in the order of the request, so partitions with records go to the end. Where many partitions have a
backlog they take turns: see `_next_turn`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from msgspec.structs import replace

from kafka_actors.errors import FetchSessionIdNotFoundError
from kafka_actors.fetch.messages import FetchedPartition, FetchReply, PartitionFetch, Pull, without_records
from kafka_actors.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kafka_actors.protocol.schema import uuid_of

Key = tuple[str, int]
Records = bytes | memoryview
NextOffset = Callable[[bytes | memoryview], int | None]

NO_SESSION = 0
FULL = 0  # session epoch of a request that names every partition
FIRST_WITH_TOPIC_IDS = 13
LAST_WITHOUT_TOPIC_IDS = 12
MAX_SESSION_EPOCH = 2**31 - 1

FULL_IN_A_ROW = 2
"""Full responses in a row after which partitions take turns: one alone may be the end of a burst."""
AT_A_TIME = 16
"""Partitions that are asked for at once, at least, where they take turns."""


class SequenceGap(Exception):
    """A pull doesn't follow the last one: the worker side has to start its stream anew."""


class _SessionPartition:
    """A requested partition, and the offset up to which it has been fetched."""

    __slots__ = ("offset", "want")

    def __init__(self, want: PartitionFetch) -> None:
        self.want = want
        self.offset = want.fetch_offset


class FetchSession:
    """Builds the Fetch requests of one connection and digests its responses.

    `isolation_level` is 0 (read_uncommitted) or 1; `rack` is the client's (KIP-392). Where partitions take turns,
    `at_a_time` of them at least are asked at once. All methods are pure bookkeeping: `apply` a pull, send what
    `request` returns, `digest` the response; then the next.
    """

    def __init__(
        self,
        *,
        broker: int = -1,
        min_bytes: int = 1,
        isolation_level: int = 0,
        rack: str = "",
        at_a_time: int = AT_A_TIME,
    ) -> None:
        self.broker = broker
        self._min_bytes = min_bytes
        self._isolation_level = isolation_level
        self._rack = rack
        self._at_a_time = at_a_time
        self._pull = Pull(sequence=-1)
        self._wanted: dict[Key, _SessionPartition] = {}
        self._without_id = 0
        self._shared: dict[Key, None] = {}
        self._session_id = NO_SESSION
        self._epoch = FULL
        self._with_ids: bool | None = None
        self._in_session: dict[
            Key, bytes | None
        ] = {}  # partitions in the broker's session, with topic ids if any
        self._changed: dict[Key, None] = {}
        self._requested: frozenset[Key] | None = None  # partitions of a full request
        self._turn: list[Key] | None = None  # the partitions whose turn it is, where they take turns
        self._subset: list[Key] | None = None  # the partitions of this request; None for all
        self._full_in_a_row = 0
        self._names: dict[bytes, str] = {}

    @property
    def wanted(self) -> dict[Key, int]:
        """The partitions that are fetched, each with its next fetch offset."""
        return {key: wanted.offset for key, wanted in self._wanted.items()}

    def apply(self, pull: Pull) -> None:
        """Applies the changes of a pull. Raises `SequenceGap` if a pull before it was lost."""
        if pull.sequence == 0:
            for key in list(self._wanted):
                self._drop(key)
        elif pull.sequence != self._pull.sequence + 1:
            raise SequenceGap(f"pull {pull.sequence} after {self._pull.sequence}")
        for topic, partition in pull.forget:
            self._drop((topic, partition))
        for want in pull.wants:
            key = want.key
            self._drop(key)
            self._wanted[key] = _SessionPartition(want)
            self._changed[key] = None
            if want.shared:
                self._shared[key] = None
            if want.topic_id is None:
                self._without_id += 1
            else:
                self._names[want.topic_id] = want.topic
        self._pull = pull

    def reset(self) -> None:
        """The connection is gone: the next request opens a session of its own."""
        self._session_id = NO_SESSION
        self._epoch = FULL

    def __len__(self) -> int:
        return len(self._wanted)

    def shared(self) -> list[PartitionFetch]:
        """Returns the partitions that other workers read, too, each from its next fetch offset on."""
        shared = map(self._wanted.__getitem__, self._shared)
        return [replace(wanted.want, fetch_offset=wanted.offset) for wanted in shared]

    def request(
        self, max_version: int, *, wait_ms: int | None = None, without: Collection[Key] = ()
    ) -> tuple[FetchRequest, int]:
        """Returns the next request and the version to send it in. `max_version`: the highest that both sides know. `wait_ms`: how long the
        broker may wait for records, by default as the pull says. `without`: partitions to leave out this time."""
        with_ids = self._without_id == 0 and max_version >= FIRST_WITH_TOPIC_IDS
        if with_ids != self._with_ids:
            # A session can't mix names and ids (KIP-516): keeping the id closes the old one on the broker.
            self._epoch = FULL
            self._with_ids = with_ids
        before, self._turn = self._subset, self._next_turn()
        self._subset = self._turn
        if without:
            self._subset = [key for key in self._turn or self._wanted if key not in without]
        requested: Collection[Key] = self._wanted if self._subset is None else self._subset
        if self._epoch == FULL:
            forgotten: dict[Key, bytes | None] = {}
            named: Iterable[Key] = requested
            self._requested = frozenset(requested)
            self._in_session = {}
        elif self._subset is None and before is None:
            forgotten = self._forgotten(self._changed, self._wanted)
            named = [key for key in self._changed if key in self._wanted]
            self._requested = None
        else:
            forgotten = self._forgotten(self._in_session, frozenset(requested))
            named = [key for key in requested if key in self._changed or key not in self._in_session]
            self._requested = None
        request = FetchRequest(
            max_wait_ms=(self._pull.max_wait_ms if wait_ms is None else wait_ms) if self._turn is None else 0,
            min_bytes=self._min_bytes,
            max_bytes=self._pull.max_bytes,
            isolation_level=self._isolation_level,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=self._topics(named),
            forgotten_topics_data=_forgotten_topics(forgotten) if forgotten else [],
            rack_id=self._rack if self._pull.followers else "",
        )
        for key in forgotten:
            self._in_session.pop(key, None)
        for key in named:
            self._in_session[key] = self._session_topic_id(key)
        self._changed.clear()
        return request, max_version if with_ids else min(max_version, LAST_WITHOUT_TOPIC_IDS)

    def digest(
        self, response: FetchResponse, *, next_offset: NextOffset, size: int = 0, seconds: float = 0.0
    ) -> tuple[FetchReply, list[Records]]:
        """Turns a response into the reply to the pull it answers, and advances what was fetched.

        With the reply come the record bytes of each of its partitions. `next_offset(records)` gives the offset
        behind their last complete batch, None where there is none.
        """
        partitions: list[FetchedPartition] = []
        records: list[Records] = []
        if response.error_code:
            self._refused(response.error_code)
        else:
            self._continued(response.session_id)
            answered = set()
            for topic in response.responses:
                name = self._names.get(topic.topic_id.bytes, "") if self._with_ids else topic.topic
                for data in topic.partitions:
                    key = (name, data.partition_index)
                    if key in answered:
                        continue  # named twice: the second part is fetched again
                    answered.add(key)
                    wanted = self._wanted.get(key)
                    if wanted is not None:
                        partitions.append(self._fetched(key, wanted, data, next_offset))
                        records.append(data.records if partitions[-1].size and data.records else b"")
            if self._requested is not None and not self._requested <= answered:
                self._epoch = FULL  # the broker's session isn't the one that was requested
            self._took_turns(size)
        reply = FetchReply(
            broker=self.broker,
            sequence=self._pull.sequence,
            partitions=partitions,
            size=size,
            throttle_ms=response.throttle_time_ms,
            error_code=response.error_code,
            seconds=seconds,
        )
        return reply, records

    def steady(self) -> list[PartitionFetch] | None:
        """Returns all partitions, each from its next fetch offset on, where the next request only goes on from the last response: within the
        broker's session, which has just these partitions, by topic ids. None where it doesn't."""
        plain = self._epoch != FULL and self._with_ids and self._subset is None and not self._full_in_a_row
        if not plain or self._shared:
            return None
        if self._in_session != {key: wanted.want.topic_id for key, wanted in self._wanted.items()}:
            return None
        return [replace(wanted.want, fetch_offset=wanted.offset) for wanted in self._wanted.values()]

    def went_on(self, responses: int, advanced: Iterable[tuple[Key, int]]) -> None:
        """Takes over responses without errors that were digested elsewhere, behind the last `request`, and the partitions that the next one has to
        name, each with its next fetch offset, in the order of their last records."""
        self._epoch += responses
        for key, offset in advanced:
            self._advance(key, self._wanted[key], offset)

    def serve(self, found: Iterable[FetchedPartition]) -> FetchReply:
        """Makes the reply to the pull of records that another session has fetched, and advances as `digest` does."""
        partitions = []
        for fetched in found:
            key = (fetched.topic, fetched.partition)
            wanted = self._wanted[key]
            own = replace(fetched, epoch=wanted.want.epoch, fetch_offset=wanted.offset)
            self._advance(key, wanted, fetched.next_offset)
            partitions.append(own)
        size = sum(fetched.size for fetched in partitions)
        return FetchReply(self.broker, self._pull.sequence, partitions, size)

    def _fetched(
        self, key: Key, wanted: _SessionPartition, data: PartitionData, next_offset: NextOffset
    ) -> FetchedPartition:
        """Makes the reply's part of one partition. Only records move its offset, which names it in the next request.

        The position of the user is no concern here: the offset is ahead of it by all that is buffered or in the user's hands.
        """
        fetch_offset = wanted.offset
        size = 0
        replica = data.preferred_read_replica
        if data.records and not without_records(data.error_code, replica):
            size = len(data.records)
            behind = next_offset(data.records)
            if behind is not None and behind > fetch_offset:
                self._advance(key, wanted, behind)
        fetched = FetchedPartition(
            topic=key[0],
            partition=key[1],
            epoch=wanted.want.epoch,
            fetch_offset=fetch_offset,
            next_offset=wanted.offset,
            error_code=data.error_code,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            aborted=tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions or ()),
            current_leader_id=data.current_leader.leader_id,
            current_leader_epoch=data.current_leader.leader_epoch,
            preferred_read_replica=replica,
            size=size,
        )
        # Also after bytes that lead nowhere: the worker finds out why, and requests it again.
        if fetched.dropped:
            self._drop(key)
        return fetched

    def _advance(self, key: Key, wanted: _SessionPartition, offset: int) -> None:
        wanted.offset = offset
        self._changed[key] = None
        # Brokers fill a response in the order of the request: partitions with records go to the end.
        self._wanted[key] = self._wanted.pop(key)

    def _next_turn(self) -> list[Key] | None:
        """Returns the partitions to ask for now, where they take turns; None for all.

        A broker looks at each partition of a session for each request (some 5 µs), and fills the response from the
        first few. Where there are many and all have a backlog, that is much of its work, and of the time until it
        answers.
        """
        if self._full_in_a_row < FULL_IN_A_ROW or not self._wanted:
            return None
        each = next(iter(self._wanted.values())).want.max_bytes
        # Twice as many as fill a response: a partition gives whole batches, and may have less than it is asked for.
        count = max(self._at_a_time, 2 * self._pull.max_bytes // max(1, each))
        return list(islice(self._wanted, count)) if 2 * count <= len(self._wanted) else None

    def _took_turns(self, size: int) -> None:
        """Moves the partitions whose turn it was behind the others, also those without records. Turns end, with a long poll for
        all, once a response isn't full."""
        self._full_in_a_row = self._full_in_a_row + 1 if 2 * size >= self._pull.max_bytes else 0
        for key in self._turn or ():
            if (wanted := self._wanted.pop(key, None)) is not None:
                self._wanted[key] = wanted

    def _drop(self, key: Key) -> None:
        """Fetches a partition no more. It is noted as changed, so that the next request has the broker forget it, too."""
        wanted = self._wanted.pop(key, None)
        if wanted is not None:
            self._without_id -= wanted.want.topic_id is None
            self._shared.pop(key, None)
            self._changed[key] = None

    def _refused(self, error_code: int) -> None:
        """Has the next request be a full one, after an error of the response as a whole."""
        if error_code == FetchSessionIdNotFoundError.code:
            self._session_id = NO_SESSION
        self._epoch = FULL

    def _continued(self, session_id: int) -> None:
        """Takes the session id of a response without an error. After the highest epoch comes 1: 0 opens a session anew."""
        self._session_id = session_id
        if session_id == NO_SESSION:
            self._epoch = FULL  # the broker has no room for a session: each request stays a full one
        else:
            self._epoch = 1 if self._epoch == MAX_SESSION_EPOCH else self._epoch + 1

    def _forgotten(self, suspects: Iterable[Key], requested: Collection[Key]) -> dict[Key, bytes | None]:
        """Returns the partitions to remove from the broker's session; under another topic id it is another partition."""
        gone: dict[Key, bytes | None] = {}
        for key in suspects:
            if key in self._in_session and (
                key not in requested or self._session_topic_id(key) != self._in_session[key]
            ):
                gone[key] = self._in_session[key]
        return gone

    def _session_topic_id(self, key: Key) -> bytes | None:
        """Returns the topic id that the broker is sent: a session of names (Fetch up to version 12) has none."""
        return self._wanted[key].want.topic_id if self._with_ids else None

    def _topics(self, keys: Iterable[Key]) -> list[FetchTopic]:
        """Returns these partitions as a request names them. Up to version 12 only the name is sent, from 13 on only the id."""
        topics: list[FetchTopic] = []
        for key in keys:
            wanted = self._wanted[key]
            want = wanted.want
            if not topics or topics[-1].topic != want.topic:
                # Consecutive partitions of a topic share an entry; the order of partitions is kept.
                topics.append(FetchTopic(topic=want.topic, topic_id=uuid_of(want.topic_id), partitions=[]))
            topics[-1].partitions.append(
                FetchPartition(
                    partition=want.partition,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=wanted.offset,
                    partition_max_bytes=want.max_bytes,
                )
            )
        return topics


def _forgotten_topics(forgotten: dict[Key, bytes | None]) -> list[ForgottenTopic]:
    by_topic: dict[tuple[str, bytes | None], list[int]] = {}
    for (topic, partition), topic_id in forgotten.items():
        by_topic.setdefault((topic, topic_id), []).append(partition)
    return [
        ForgottenTopic(topic=topic, topic_id=uuid_of(topic_id), partitions=partitions)
        for (topic, topic_id), partitions in by_topic.items()
    ]
