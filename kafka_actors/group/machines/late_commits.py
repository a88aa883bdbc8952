"""Commits that had no answer, and may yet undo later ones: the part of `commits.CommitQueue` that looks after them.

Theory of operation. A request that had no answer may be carried out long after: a broker that was stopped goes on, a router gives out what
it kept. Kafka carries out an OffsetCommit of the present generation whatever was committed since, so an offset may go back, and stays
there if nothing more is committed for its partition. Only a new generation fences such a request. Arrives: partitions of commits without
an answer (`unanswered`), what the group has acknowledged since (`committed`), the member (`keep`), and once none was left without an answer for
`quiet_s`, what the group has (`undone`). Decided: when to look (`due_at`), and what is to be committed again.

States of a partition here: unknown (not kept), *watched* since a commit for it had no answer, and *again*
while an offset that was undone is being committed once more. A new generation ends all of it, because it
fences the late request; so does a revoked partition, which is another member's affair from then on.

Between the late request and the look-up a crash repeats records; none is lost. Partitions that are chosen by hand are left alone: others may
commit for them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from kafka_actors.group.commit_metadata import unpack
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .member_events import Generation
from .offset_fetch import CommittedOffsets
from .pending_commits import CommitEligibility


class LateCommits:
    """Partitions for which a commit without an answer may land yet, and what was committed for them since. Times are seconds."""

    def __init__(self, quiet_s: float) -> None:
        self.due_at = math.inf
        """When the partitions are to be looked up; infinity without any."""
        self._quiet_s = quiet_s
        self._generation: Generation | None = None
        self._committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self._again: set[TopicPartition] = set()
        """Partitions whose offset is being committed again, and not acknowledged so far."""

    @property
    def partitions(self) -> Collection[TopicPartition]:
        return self._committed.keys()

    def unanswered(self, partitions: Iterable[TopicPartition], generation: Generation, now: float) -> None:
        """Takes the partitions of a commit of this generation that ended without an answer."""
        self._generation = generation
        for tp in partitions:
            self._committed.setdefault(tp, None)
            self._again.discard(tp)
        self.due_at = now + self._quiet_s

    def committed(self, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Takes an offset that the group has acknowledged, or was found to have."""
        if tp in self._again:
            self._forget([tp])
        elif tp in self._committed:
            self._committed[tp] = offset

    def keep(self, member: CommitEligibility) -> None:
        """Forgets what is no longer the member's; everything once a later generation fences it, or where others may commit. Of a topic that
        was made anew the next commit is looked after: one by name, as they are before Kafka 4.1, may land in the new topic, too."""
        if not self._committed:
            return
        if member.owned is None or member.ended is not None or member.generation != self._generation:
            self.clear()
            return
        owned, topic_id = member.owned, member.topic_id
        self._forget([tp for tp in self._committed if tp not in owned])
        for tp, offset in self._committed.items():
            if offset is not None and _is_of_another(offset, topic_id(tp.topic)):
                self._committed[tp] = None
                self._again.discard(tp)

    def undone(self, found: CommittedOffsets, now: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what has to be committed again, by what the group has. It is looked up again if that is not acknowledged either."""
        again = {
            tp: offset
            for tp, offset in self._committed.items()
            if offset is not None and tp in found.offsets and not _same(found.offsets[tp], offset)
        }
        self._forget([tp for tp in self._committed if tp not in again])
        self._again = set(again)
        self.due_at = now + self._quiet_s if again else math.inf
        return again

    def clear(self) -> None:
        self._forget(list(self._committed))

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends watching these partitions."""
        for tp in partitions:
            del self._committed[tp]
            self._again.discard(tp)
        if not self._committed:
            self.due_at = math.inf


def _same(found: OffsetAndMetadata | None, offset: OffsetAndMetadata) -> bool:
    return (
        found is not None
        and found[:2] == offset[:2]
        and not _is_of_another(found, unpack(offset.metadata).topic_id)
    )


def _is_of_another(offset: OffsetAndMetadata, topic_id: bytes | None) -> bool:
    """Whether an offset is of another topic than the one with this id."""
    own = unpack(offset.metadata).topic_id
    return own is not None and topic_id is not None and own != topic_id
