"""Incremental fetch sessions on a broker's side (KIP-227).

Theory of operation. A client that reads many partitions from a broker would name all of them in each request.
A session is the broker's memory of what it named last and was told last, so that both sides send only
changes. Arrives: session id, epoch, partitions to add or change, and partitions to forget. Decided: what is
read, and what of it the client has to be told.

- A full request (epoch 0) opens a session, if the broker has room for one; epoch -1 asks for none, and both
  close the session that they name. Where there is no room, the session id in the response is 0, and the
  client goes on with full requests. A session that was not used for two minutes makes room.
- Later requests name session and epoch: they change, add and forget partitions, and are answered with only
  those that have records, an error, or another high watermark or start than the client was told.
- Each incremental request raises the epoch. One with another epoch than the next is refused, and so is the
  end of a long poll whose session has gone on meanwhile: the two sides would have different memories.
- A partition with records goes to the end of the order, so that each has its turn within the request's limit
  of bytes.
- A session has names or ids, never both (KIP-516). A topic's name is kept with its id, so a deleted topic is
  still answered for with the error that belongs to it.

The memory dies with the broker (`FetchHandlers.restarted`): clients then get FETCH_SESSION_ID_NOT_FOUND and
begin anew.

Source: `FetchSession.scala` (`FetchManager`, `FullFetchContext`, `IncrementalFetchContext`).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kafka_actors import errors
from kafka_actors.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

from .cluster_state import ClusterState
from .error_answers import Refused

PartitionKey = tuple[str, UUID, int]
"""Topic, topic id and partition: requests before version 13 have no id, later ones no name."""
_FINAL, _INITIAL = -1, 0


class _Cached:
    """A partition of a session: what the client asked last, and what it was told last."""

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def tell(self, found: PartitionData) -> bool:
        """Notes what the client is told; returns whether it has to be."""
        news = (
            bool(found.records)
            or self.high_watermark != found.high_watermark
            or self.log_start_offset != found.log_start_offset
            or found.preferred_read_replica >= 0
            or found.error_code != 0
            or found.diverging_epoch != EpochEndOffset()
        )
        self.high_watermark = found.high_watermark if not found.error_code else -1
        self.log_start_offset = found.log_start_offset
        return news


class BrokerFetchSession:
    """Session of one client with one broker: the partitions that it fetches. `names` are those that the topic ids once had: a session keeps them."""

    def __init__(self, session_id: int, uses_ids: bool) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        self.partitions: dict[PartitionKey, _Cached] = {}
        self.names: dict[PartitionKey, str] = {}
        self.used = 0.0


class FetchContext:
    """The partitions of one request, and what of their data its response has."""

    def __init__(
        self,
        wanted: dict[PartitionKey, FetchPartition],
        sessions: BrokerFetchSessions | None = None,
        *,
        session: BrokerFetchSession | None = None,
        uses_ids: bool = False,
    ) -> None:
        self.wanted = wanted
        self.names: dict[PartitionKey, str] = session.names if session is not None else {}
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch if session is not None else 0
        self._uses_ids = uses_ids

    def finish(
        self, found: list[tuple[PartitionKey, PartitionData]]
    ) -> tuple[int, list[tuple[PartitionKey, PartitionData]]]:
        """Returns the session id and the partitions of the response. Raises `Refused` where another request came meanwhile."""
        if self._session is not None:
            return self._session.session_id, self._incremental(self._session, found)
        if self._sessions is None:
            return 0, found
        return self._sessions.open(self, found, self._uses_ids), found

    def _incremental(
        self, session: BrokerFetchSession, found: list[tuple[PartitionKey, PartitionData]]
    ) -> list[tuple[PartitionKey, PartitionData]]:
        """Returns the partitions that the client hasn't been told in this state.

        Raises `Refused` where another request has used the session meanwhile.
        """
        if session.epoch != self._epoch:
            raise Refused(errors.InvalidFetchSessionEpochError)
        told = []
        for key, data in found:
            cached = session.partitions.get(key)
            if cached is not None and cached.tell(data):
                told.append((key, data))
                if data.records:
                    session.partitions[key] = session.partitions.pop(key)
        return told


class BrokerFetchSessions:
    """All sessions of one broker."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._sessions: dict[int, BrokerFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_ids: bool,
    ) -> FetchContext:
        """Returns the context of a request. Raises `Refused` for a session or an epoch that is not known."""
        if epoch in (_FINAL, _INITIAL):
            self._sessions.pop(session_id, None)
            return FetchContext(wanted, self if epoch == _INITIAL else None, uses_ids=uses_ids)
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(errors.FetchSessionIdNotFoundError)
        if session.epoch != epoch:
            raise Refused(errors.InvalidFetchSessionEpochError)
        if session.uses_ids != uses_ids:
            raise Refused(errors.FetchSessionTopicIdError)
        for key, partition in wanted.items():
            if key in session.partitions:
                session.partitions[key].wanted = partition
            else:
                session.partitions[key] = _Cached(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(wanted)
        session.used = self._state.now
        session.epoch = session.epoch % 0x7FFFFFFF + 1
        return FetchContext({key: c.wanted for key, c in session.partitions.items()}, session=session)

    def open(
        self, context: FetchContext, found: list[tuple[PartitionKey, PartitionData]], uses_ids: bool
    ) -> int:
        """Opens a session; returns its id, 0 where there is no room for one."""
        if not self._make_room():
            return 0
        session_id = self._state.random.randrange(1, 2**31)
        session = BrokerFetchSession(session_id, uses_ids)
        session.used = self._state.now
        session.names = context.names
        for key, data in found:
            session.partitions[key] = _Cached(context.wanted[key])
            session.partitions[key].tell(data)
        self._sessions[session_id] = session
        return session_id

    def _make_room(self) -> bool:
        """Drops the session that was not used for the longest, if that is 2 minutes (Kafka's `min.incremental.fetch.session.eviction.ms`)."""
        if len(self._sessions) < self._state.settings.max_incremental_fetch_session_cache_slots:
            return True
        oldest = min(self._sessions.values(), key=lambda s: s.used, default=None)
        if oldest is None or self._state.now - oldest.used <= 120:
            return False
        del self._sessions[oldest.session_id]
        return True
