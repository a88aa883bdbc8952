"""`Handover`: the steps of a backfill, and the one to go on with after a crash.

Theory of operation. The steps are PLAN, READ_HISTORY, HAND_OVER, GO_LIVE. Each has one durable effect by which it can
be recognised later: the plan is a file, the history that was read is in Spark's checkpoint, the hand-over is in the
group's committed offsets. So the machine keeps no state of its own between processes. A new driver feeds it the
facts in order, and it skips the steps that are done:

    planned(plan)           a plan is in its file and is this pipeline's         → READ_HISTORY
    read(finished)          the query's last finished batch is at all ends       → HAND_OVER
    commit(committed, …)    returns the offsets that the group has to commit
    handed_over()           they are committed                                   → GO_LIVE

The one fact that leaves no trace is that offsets were committed and have expired since: the caller keeps a file
beside the plan for that, and says `again`.

Offsets are only ever moved forward: a partition whose committed offset is at the plan's end or further is left alone, and
one below it belongs to somebody else, which is an error unless `overwrite_offsets` allows it. Before the commit every
partition's start is compared with its log, so that live never begins with records that are gone.
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
    """The next step."""

    PLAN = "plan"
    READ_HISTORY = "read the history"
    HAND_OVER = "hand over"
    GO_LIVE = "go live"


class HandoverCommit(Struct, frozen=True):
    """Offsets that the group has to commit, in one request. `takes_over`: partitions of the plan are among them, not only
    ones that were added later."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    takes_over: bool


class Handover:
    """Decides the step of a hand-over from what is found; see the module. `where` is the plan's file, for errors.

    `overwrite_offsets`: committed offsets below the plan's ends, which somebody else committed, may be overwritten.
    """

    def __init__(self, wanted: PlannedRead, where: str, *, overwrite_offsets: bool = False) -> None:
        self._read = wanted
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
        """Takes the plan out of its file. Raises `ConfigError` for the plan of another pipeline."""
        check_same(plan, self._read, self._where)
        self._plan = plan
        self.step = HandoverStep.READ_HISTORY

    def read(self, finished: Iterable[Mapping[TopicPartition, int]] | None, *, ended: bool = False) -> None:
        """Takes the end of Spark's last finished batch, of each source that the query has for these topics; None without one.

        `ended`: the query has ended. Raises `HandoverError` where it then is not at the ends of the plan, because it was
        stopped.
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
        """The offsets to commit so that the group begins where history ended; none for partitions that are there or further.

        `again`: the hand-over was committed before. Offsets that are missing then have expired, and live may have been
        further; topics that are gone do not matter any more. Raises `HandoverError` for expired offsets and for
        offsets that others committed; `TopicRecreatedError`, `StartLostError` or `DataLossError` where the records
        with which live would begin are gone.
        """
        check_cluster(self.plan, cluster.cluster_id)
        ends = self.plan.ends
        made: dict[TopicPartition, OffsetAndMetadata] = {}
        below: list[str] = []
        expired: list[TopicPartition] = []
        tps = sorted(cluster.logs.keys() if again else {*ends, *cluster.logs})
        for tp in tps:
            found, wanted = committed.get(tp), self.plan.commit_of(tp)
            if found is None:
                made[tp] = wanted
                if again and tp in ends:
                    expired.append(tp)
            elif found.offset < wanted.offset:
                made[tp] = wanted
                below.append(f"{tp.topic}-{tp.partition} at {found.offset}, not {wanted.offset}")
        starts = {**committed, **made}
        self._check_starts({tp: starts[tp].offset for tp in tps}, cluster)
        if not self._overwrite:
            self._check_expired(expired)
            self._check_below(below)
        return HandoverCommit(made, not made.keys().isdisjoint(ends))

    def _check_expired(self, expired: list[TopicPartition]) -> None:
        if expired:
            many = f"{len(expired)} partition{'s' * (len(expired) != 1)}"
            raise HandoverError(
                f"group {self.plan.group_id!r} has no offset any more for {many} ({expired[0].topic}-{expired[0].partition} "
                "among others) that were handed over: offsets expire in a group without members "
                "(offsets.retention.minutes); overwrite_offsets=True begins again where the history ended"
            )

    def _check_below(self, below: list[str]) -> None:
        if below:
            shown = "; ".join(below[:3]) + (f"; and {len(below) - 3} more" if len(below) > 3 else "")
            raise HandoverError(
                f"group {self.plan.group_id!r} has committed offsets that lie in the history: {shown}; "
                "nobody else may use this group, or say overwrite_offsets=True"
            )

    def handed_over(self) -> None:
        """Notes that the group's offsets are committed."""
        self.step = HandoverStep.GO_LIVE

    def _check_starts(self, starts: Mapping[TopicPartition, int], cluster: ObservedTopics) -> None:
        """Raises the first loss, with the others as notes: a topic that was made anew, a partition that is gone,
        records at the start that are.
        """
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
