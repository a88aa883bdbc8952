"""`Handover`: plan, read the history, commit for the group, go live; and where that stands after a crash.

Each step has one effect, and each effect can be seen afterwards: the plan is a file, what was read is in Spark's
checkpoint, what was handed over is in the group's offsets. So whoever starts again asks these, and goes on from there.
Only that offsets were there and are gone can't be seen: of that there is a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct

from kafka_actors.errors import DataLossError, HandoverError, StartLostError, TopicRecreatedError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .handover_plan import HandoverPlan, ObservedTopics, PlannedRead, check_cluster, check_same

Committed = Mapping[TopicPartition, OffsetAndMetadata]


class HandoverStep(Enum):
    """What is to be done next."""

    PLAN = "plan"
    READ_HISTORY = "read the history"
    HAND_OVER = "hand over"
    GO_LIVE = "go live"


class HandoverCommit(Struct, frozen=True):
    """What the group has to commit, in one request. `takes_over`: it is the hand-over itself, not only the start of
    partitions that came later."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    takes_over: bool


class Handover:
    """Facts go in, what to do comes out. `where` is the plan's file, for errors.

    `overwrite_offsets`: offsets of the group below the plan's ends that came from elsewhere may be passed over.
    """

    def __init__(self, wanted: PlannedRead, where: str, *, overwrite_offsets: bool = False) -> None:
        self._wanted = wanted
        self._where = where
        self._overwrite = overwrite_offsets
        self._plan: HandoverPlan | None = None
        self.step = HandoverStep.PLAN

    @property
    def plan(self) -> HandoverPlan:
        """The plan, from the first step on."""
        assert self._plan is not None
        return self._plan

    def planned(self, plan: HandoverPlan) -> None:
        """The plan is in its file. Raises `ConfigError` where it is another pipeline's."""
        check_same(plan, self._wanted, self._where)
        self._plan = plan
        self.step = HandoverStep.READ_HISTORY

    def read(self, finished: Iterable[Mapping[TopicPartition, int]] | None, *, ended: bool = False) -> None:
        """Where Spark's last finished batch ended, of each source that it has for these topics; None if there is none.

        `ended`: the query has ended, so that it won't get any further. Raises `HandoverError` where it then is not at
        the ends of the plan: it was stopped.
        """
        left = self._left(finished)
        if not left:
            self.step = HandoverStep.HAND_OVER
        elif ended:
            records = sum(left.values())
            first = min(left)
            raise HandoverError(
                f"the query ended {records} offset{'s' * (records != 1)} before the end of the history "
                f"({first.topic}-{first.partition} among others): it was stopped; start again, and it goes on"
            )

    def _left(self, finished: Iterable[Mapping[TopicPartition, int]] | None) -> dict[TopicPartition, int]:
        sources = list(finished or ())
        ends = self.plan.ends
        if not sources:
            return ends
        reached = {tp: min(source.get(tp, 0) for source in sources) for tp in ends}
        return {tp: end - reached[tp] for tp, end in ends.items() if reached[tp] < end}

    def commit(self, committed: Committed, cluster: ObservedTopics, *, again: bool = False) -> HandoverCommit:
        """What to commit so that the group begins where history ended: nothing where it is there or further.

        `again`: it was handed over before, so that offsets that aren't there were lost, and live was further maybe; a
        topic that is gone is no matter of the hand-over then.
        Raises `HandoverError` for that and for offsets of others, and where records that live would begin with are gone a
        `TopicRecreatedError`, `StartLostError` or `DataLossError`.
        """
        check_cluster(self.plan, cluster.cluster_id)
        ends = self.plan.ends
        made: dict[TopicPartition, OffsetAndMetadata] = {}
        foreign: list[str] = []
        lost: list[TopicPartition] = []
        tps = sorted(cluster.logs.keys() if again else {*ends, *cluster.logs})
        for tp in tps:
            found, wanted = committed.get(tp), self.plan.commit_of(tp)
            if found is None:
                made[tp] = wanted
                if again and tp in ends:
                    lost.append(tp)
            elif found.offset < wanted.offset:
                made[tp] = wanted
                foreign.append(f"{tp.topic}-{tp.partition} at {found.offset}, not {wanted.offset}")
        starts = {**committed, **made}
        self._check_starts({tp: starts[tp].offset for tp in tps}, cluster)
        if not self._overwrite:
            self._check_lost(lost)
            self._check_foreign(foreign)
        return HandoverCommit(made, not made.keys().isdisjoint(ends))

    def _check_lost(self, lost: list[TopicPartition]) -> None:
        if lost:
            many = f"{len(lost)} partition{'s' * (len(lost) != 1)}"
            raise HandoverError(
                f"group {self.plan.group_id!r} has no offset any more for {many} ({lost[0].topic}-{lost[0].partition} "
                "among others) that were handed over: offsets expire in a group without members "
                "(offsets.retention.minutes); overwrite_offsets=True begins again where the history ended"
            )

    def _check_foreign(self, foreign: list[str]) -> None:
        if foreign:
            shown = "; ".join(foreign[:3]) + (f"; and {len(foreign) - 3} more" if len(foreign) > 3 else "")
            raise HandoverError(
                f"group {self.plan.group_id!r} has committed offsets that lie in the history: {shown}; "
                "nobody else may use this group, or say overwrite_offsets=True"
            )

    def handed_over(self) -> None:
        """The group's offsets are committed."""
        self.step = HandoverStep.GO_LIVE

    def _check_starts(self, starts: Mapping[TopicPartition, int], cluster: ObservedTopics) -> None:
        found: list[DataLossError] = []
        ids = self.plan.topic_ids
        for tp, start in starts.items():
            log = cluster.logs.get(tp)
            old, new = ids.get(tp.topic), cluster.topic_ids.get(tp.topic)
            if old is not None and new is not None and old != new:
                found.append(TopicRecreatedError(*tp, start, old.hex(), new.hex()))
            elif log is None:
                found.append(DataLossError(*tp, start, "the partition is gone"))
            elif start < log.start:
                found.append(StartLostError(*tp, start, log.start, self._remedy(tp)))
        if found:
            for other in found[1:]:
                found[0].add_note(f"and {other}")
            raise found[0]

    def _remedy(self, tp: TopicPartition) -> str:
        return (
            "to go on without them: kafka-actors groups reset-offsets "
            f"--group {self.plan.group_id} --topic {tp.topic}:{tp.partition} --to-earliest --execute"
        )
