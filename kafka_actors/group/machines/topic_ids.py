"""Topics by their ids (KIP-516): which were deleted and made anew while they were consumed, and what committed offsets count.

Commits carry the id of their topic in their metadata (`commit_metadata`), because OffsetCommit names topics by name. An offset
of a topic that is gone says nothing about the one that has its name now: it is neither shown to users nor read from. Ids outlive
revocations (`TopicIds.first`), so that a topic made anew while others had it is noticed when it comes back.

Theory of operation. Arrives: owned partitions with the ids that metadata has now, and committed offsets. Decided: which
partitions belong to another topic than before (`changed`), what users see of committed offsets (`as_committed`), and where
reading begins (`committed_starts`). An id that isn't known, as with brokers before 2.8, proves nothing: then everything is
as without ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .member_events import Partitions

Found = Mapping[TopicPartition, OffsetAndMetadata | None]
Ids = Mapping[str, bytes | None] | Mapping[str, bytes]


class TopicIds:
    """Remembers the ids that owned topics had when they were assigned, and when they were owned first: those outlive revocations.
    Brokers before 2.8 have no ids: nothing is noticed."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._first: dict[str, bytes] = {}

    def first(self, topic: str) -> bytes | None:
        """Returns the id that the topic had when it was consumed first; None if it never was."""
        return self._first.get(topic)

    def of_owned(self, topic: str) -> bytes | None:
        """Returns the id that an owned topic had when it was assigned, or made anew; None if it isn't owned."""
        return self._ids.get(topic)

    def changed(self, owned: Partitions, ids: Mapping[str, bytes | None]) -> Partitions:
        """Returns the owned partitions whose topic has another id than before; each change is reported once."""
        topics = {tp.topic for tp in owned}
        self._ids = {topic: known for topic, known in self._ids.items() if topic in topics}
        recreated: set[str] = set()
        for topic in topics:
            now = ids.get(topic)
            if now is None:
                continue
            self._first.setdefault(topic, now)
            if self._ids.setdefault(topic, now) != now:
                self._ids[topic] = now
                recreated.add(topic)
        return frozenset(tp for tp in owned if tp.topic in recreated) if recreated else frozenset()


def without(owned: Partitions, gone: set[TopicPartition]) -> Partitions:
    """Returns `owned` without what is `gone`, and removes from `gone` what is no longer owned."""
    gone &= owned
    return owned - gone if gone else owned


class CommittedStart(NamedTuple):
    """The position at which a partition is taken on. `offset`: as committed, None if nothing is. `topic_id`: of the topic that the offset
    is of, or that was consumed so far; whoever reads finds that the topic was recreated if it has another one now.
    `counts`: the offset is not one of a topic that is gone. `done`: the text of what is done beyond it (`done_offsets`)."""

    offset: int | None = None
    leader_epoch: int = -1
    topic_id: bytes | None = None
    counts: bool = False
    done: str = ""

    @property
    def committed(self) -> OffsetAndMetadata | None:
        """The offset as it is committed, if it counts."""
        if self.offset is None or not self.counts:
            return None
        return OffsetAndMetadata(self.offset, pack("", self.topic_id, done=self.done), self.leader_epoch)


def of_this_cluster(found: Found, cluster_id: str | None) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Returns committed offsets without ids of topics of another cluster: a commit copied from there names no topic here."""
    result = dict(found)
    for tp, offset in found.items():
        if offset is not None:
            found_of = unpack(offset.metadata)
            if None not in (found_of.cluster_id, cluster_id) and found_of.cluster_id != cluster_id:
                result[tp] = offset._replace(metadata=pack(found_of.text, None))
    return result


def outdated(found: Found, ids: Ids) -> dict[str, bytes]:
    """Returns the ids that committed offsets name and their topics don't have, by topic. `ids`: the present ones."""
    return {
        tp.topic: topic_id
        for tp, offset in found.items()
        if offset is not None
        and (topic_id := unpack(offset.metadata).topic_id) is not None
        and ids.get(tp.topic) not in (None, topic_id)
    }


def as_committed(found: Found, ids: Ids) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Returns offsets as users see them: with their own metadata, and None for those of topics that are gone."""
    seen: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for tp, offset in found.items():
        seen[tp] = None
        if offset is not None:
            committed = unpack(offset.metadata)
            if committed.topic_id is None or ids.get(tp.topic) in (None, committed.topic_id):
                seen[tp] = offset._replace(metadata=committed.text)
    return seen


def committed_starts(
    partitions: Iterable[TopicPartition], found: Found, ids: Ids, known: TopicIds, *, loss_is_fatal: bool
) -> dict[TopicPartition, CommittedStart]:
    """Returns where each partition is taken on.

    `ids`: what topics have now; `known`: what they had when they were consumed first. An offset that names the present
    topic counts, whoever committed it. One that names another topic does not; nor does one that names none where the
    topic is another one than was consumed, if `loss_is_fatal`. Where nothing is committed, a topic that is another one
    than was consumed, or than other partitions' offsets name, has been recreated.
    """
    gone = outdated(found, ids)
    result = {}
    for tp in partitions:
        offset, now = found.get(tp), ids.get(tp.topic)
        before = gone.get(tp.topic) or known.first(tp.topic) or now
        if offset is None:
            result[tp] = CommittedStart(topic_id=before)
            continue
        metadata = unpack(offset.metadata)
        named = metadata.topic_id
        if named is None:
            named = before if loss_is_fatal else now
        counts = named is None or now in (None, named)
        done = metadata.done if counts else ""
        result[tp] = CommittedStart(offset.offset, offset.leader_epoch, named, counts, done)
    return result
