"""Journal of a simulated job's calls and commits, and what must hold at every step of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kafka_actors import events
from kafka_actors.group import commit_metadata
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.group.machines.assignment import decode_assignment
from kafka_actors.job.messages import Orders, Report, unpack
from kafka_actors.testing.fake_kafka.machines.fake_cluster import FakeCluster
from kafka_actors.types import TopicPartition

from .actors import ACTOR, SimulatedActor

NOT_AWAITED = frozenset({"group_lost", "conflict", "reset"})
"""Causes for which a partition leaves a worker that isn't waited for: it may begin another call until it hears of it, or its lease ends."""
LEASE_S = 11.0
"""The longest lease of a worker, and a second."""
DIED = "the worker's process ended in each call"
"""Words about records that are given up because workers died in their calls: as often as is tried, also of other causes."""


class Violation(AssertionError):
    """Something that must hold did not."""


class Progress:
    """How far one log of a partition was processed. `lossy`: it lost records, so offsets may come twice with other records."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.skipped: set[int] = set()
        self.watermark = 0
        self.committed = 0
        self.lossy = False
        self.reached: dict[str, int] = {}
        """Worker → the offset behind its last call that returned, since its last grant."""

    def finished(self, offsets: Iterable[int]) -> None:
        """Takes offsets for which the function has returned, or which were given up."""
        self.done.update(offsets)
        while self.watermark in self.done:
            self.done.discard(self.watermark)
            self.watermark += 1

    def shortened(self, end: int) -> None:
        """Takes that records from an offset on are lost."""
        self.lossy = True
        self.done = {offset for offset in self.done if offset < end}
        self.watermark = min(self.watermark, end)


class PartitionJournal:
    """One partition: how far each of its logs was processed (a topic that is made anew has new ones), the worker that began the last call
    of it, and who is in a call."""

    def __init__(self) -> None:
        self.lives: list[Progress] = [Progress()]
        self.last: tuple[str, str, Any] | None = None
        """Member, worker and epoch of the last call that began."""
        self.generation = -1
        """Generation of the group when it began."""
        self.unawaited: dict[str, float] = {}
        """Workers that may not have heard yet that they lost the partition, and since when."""

    @property
    def ended_uncommitted(self) -> bool:
        """Whether a topic ended with records that were processed and not committed: nobody can commit them any more."""
        return any(life.watermark > life.committed or life.done for life in self.lives[:-1])

    def of(self, life: int) -> Progress:
        """Progress in one of its logs, by their number."""
        while len(self.lives) <= life:
            self.lives.append(Progress())
        return self.lives[life]


class Journal:
    """Journal of one group, checked with each entry. `trace`: the newest entries, for a person."""

    def __init__(self, cluster: FakeCluster, group: str) -> None:
        self.cluster, self.group = cluster, group
        self.partitions: dict[TopicPartition, PartitionJournal] = defaultdict(PartitionJournal)
        self.trace: list[str] = []
        self.violation: Violation | None = None
        """The first: whoever called may have caught it."""
        self.life = 0
        """How often the topic was made anew."""
        self.in_call: dict[str, list[TopicPartition]] = defaultdict(list)
        """Worker → the partitions of the calls that it is in."""
        self._lives: dict[bytes, int] = {}
        self._granted: dict[tuple[str, TopicPartition, Any], str] = {}
        self._joined: dict[str, int] = defaultdict(int)
        """Job → how many of its coordinators have begun to join the group."""
        self._generation = 0
        self._arrived: list[tuple[set[TopicPartition], bool]] = []
        """Commits that have come since the last turn: their partitions, and whether their client had closed the connection before."""
        self._now = lambda: 0.0
        self.counts: dict[str, int] = defaultdict(int)

    def use_clock(self, now: Any) -> None:
        """Takes the clock of the run."""
        self._now = now

    def note(self, text: str) -> None:
        """Adds a line to the trace, which ends with what does not hold: the function's errors are caught, and calls go on."""
        if self.violation is None:
            self.trace.append(f"{self._now():9.4f} {text}")

    def fail(self, what: str) -> None:
        """Reports that something does not hold."""
        self.note(f"VIOLATION: {what}")
        self.violation = self.violation or Violation(what)
        raise self.violation

    # ---------------------------------------------------------------- calls of the function

    def now(self, partition: TopicPartition) -> Progress:
        """Progress in the log that a partition has now."""
        return self.partitions[partition].of(self.life)

    def recreated(self) -> None:
        """Takes that the topic is made anew."""
        self.life += 1
        self.note("the topic is made anew")

    def begins(
        self, member: str, worker: str, epoch: Any, partition: TopicPartition, life: int, offsets: list[int]
    ) -> None:
        """Checks a call that begins. `epoch`: of the grant under which it is; None for a plain consumer. `life`: number of the topic
        that the records are of."""
        progress = self.partitions[partition].of(life)
        first = offsets[0]
        self.counts["calls"] += 1
        self.enters(worker, partition)
        self.note(f"call {worker} {partition.partition} [{first}..{offsets[-1]}] {epoch}")
        if offsets != list(range(first, offsets[-1] + 1)):
            self.fail(f"{partition}: a batch with offsets {offsets}: there are no gaps in the log")
        passed = set(range(progress.watermark, first))
        if not passed <= progress.done and not progress.lossy:
            self.fail(
                f"{partition}: {worker} begins at {first}, and {progress.watermark} was never processed"
            )
        reached = progress.reached.get(f"{worker} {epoch}", first)
        goes_on = reached <= first and progress.skipped.issuperset(range(reached, first))
        if not goes_on and not progress.lossy and not self.has_not_heard(self.partitions[partition], worker):
            self.fail(
                f"{partition}: {worker} goes on at {first} under {epoch}, and its last call ended at {reached}"
            )
        self.check_owner(self.partitions[partition], member, worker, epoch, partition)

    def enters(self, worker: str, partition: TopicPartition) -> None:
        """Takes that a worker is in a call of a partition."""
        self.in_call[worker].append(partition)

    def leaves(self, worker: str, partition: TopicPartition) -> None:
        """Takes that a call has ended."""
        self.in_call[worker].remove(partition)

    def check_owner(
        self, found: PartitionJournal, member: str, worker: str, epoch: Any, partition: TopicPartition
    ) -> None:
        """Checks whether it is this worker's turn in a partition, or in what `found` is of it."""
        generation = self._generation
        if found.last is not None and found.last[:2] != (member, worker):
            self.counts["handed over"] += 1
            same_member = found.last[0] == member
            if self.has_not_heard(found, worker):
                pass
            elif same_member and epoch is not None and found.last[2] is not None and epoch < found.last[2]:
                self.fail(
                    f"{partition}: {worker} begins a call under {epoch} after {found.last[1]} has under {found.last[2]}"
                )
            elif not (
                same_member
                or generation > found.generation
                or self.has_not_heard(found, found.last[1])
                or self._unheard(found.last, worker, epoch)
            ):
                self.fail(
                    f"{partition}: {worker} of {member} begins a call after {found.last[1]} of {found.last[0]} has in the"
                    f" same generation {generation}"
                )
            for progress in found.lives:
                progress.reached.clear()
        found.generation = generation
        found.last = (member, worker, epoch)

    def _unheard(self, last: tuple[str, str, Any], worker: str, epoch: Any) -> bool:
        """Whether the grant of one of two workers is of a coordinator that has been replaced since: the group may have given away at once what
        the new one doesn't say it has, and the worker may go on until it hears from it (docs/concepts/epochs-and-leases.md)."""
        return any(
            of is not None and of[0] < self._joined[name.partition("/")[0]]
            for name, of in ((worker, epoch), (last[1], last[2]))
        )

    def has_not_heard(self, found: PartitionJournal, worker: str) -> bool:
        """Whether a worker may not have heard yet that it lost a partition."""
        return self._now() - found.unawaited.get(worker, -LEASE_S) < LEASE_S

    def returned(
        self,
        worker: str,
        epoch: Any,
        partition: TopicPartition,
        life: int,
        offsets: list[int],
        lost: Iterable[int] = (),
    ) -> None:
        """Takes that a call has returned. `lost`: offsets of records that the log has lost since."""
        self.leaves(worker, partition)
        progress = self.partitions[partition].of(life)
        progress.finished(set(offsets) - set(lost))
        progress.reached[f"{worker} {epoch}"] = offsets[-1] + 1

    def lost(self, worker: str, partitions: Iterable[TopicPartition]) -> None:
        """Takes that a plain consumer has lost partitions without a revocation: it may get one again, and then begins at the committed offset."""
        for partition in partitions:
            for progress in self.partitions[partition].lives:
                progress.reached.pop(f"{worker} {None}", None)

    def note_skipped(self, partition: TopicPartition, offset: int) -> None:
        """Takes that a record may be skipped: the function fails for it each time."""
        self.now(partition).skipped.add(offset)
        self.now(partition).finished([offset])

    # ---------------------------------------------------------------- the coordinator of a job

    def answered(self, to: SimulatedActor, method: str, args: tuple[Any, ...], result: Any) -> None:
        """Looks at the orders in answers of coordinators: an epoch of a partition belongs to one worker."""
        if method != "poll" or result is None:
            return
        orders = unpack(result, Orders)
        if not orders.grants:
            return
        job = to.client.partition("/")[0]
        worker = f"{job}/{unpack(args[0], Report).worker}"
        for grant in orders.grants:
            key = (job, grant.partition, grant.epoch)
            if self._granted.setdefault(key, worker) != worker:
                self.fail(
                    f"{grant.partition}: epoch {grant.epoch} was {self._granted[key]}'s, and is granted to {worker}"
                )

    def happened(self, event: events.Event) -> None:
        """Takes an event of a job."""
        self.note(str(event))
        self.counts[type(event).__name__] += 1
        if isinstance(event, events.Rejoining) and event.reason == "the consumer starts":
            self._joined[ACTOR.get().client.partition("/")[0]] += 1
        if isinstance(event, events.RecordsSkipped) and DIED in event.error:
            for offset in range(event.first_offset, event.last_offset + 1):
                self.note_skipped(TopicPartition(event.topic, event.partition), offset)
        if isinstance(event, events.DrainForced) or (
            isinstance(event, events.PartitionMoved) and event.cause in NOT_AWAITED
        ):
            worker = f"{ACTOR.get().client.partition('/')[0]}/{event.worker}"
            self.partitions[TopicPartition(event.topic, event.partition)].unawaited[worker] = self._now()

    # ---------------------------------------------------------------- the group

    def arrived(self, commit: Any, *, late: bool) -> None:
        """Takes a request to commit that comes to a broker. `late`: its client has closed the connection."""
        named = {TopicPartition(t.name, p.partition_index) for t in commit.topics for p in t.partitions}
        self._arrived.append((named, late))

    def turned(self) -> None:
        """Looks at the group after a turn of the cluster."""
        for topic in self.cluster.state.topics.values():
            self._lives.setdefault(topic.topic_id.bytes, self.life)
        group = self.cluster.groups.groups.get(self.group)
        if group is not None and group.members.generation != self._generation and group.state == "Stable":
            self._check_generation(group)
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._check_commits({partition for named, late in arrived if late for partition in named})

    def _check_generation(self, group: Any) -> None:
        generation = group.members.generation
        if generation < self._generation:
            self.fail(f"the group went from generation {self._generation} back to {generation}")
        self._generation = generation
        owners: dict[Any, str] = {}
        for member in group.members:
            for partition in decode_assignment(member.assignment):
                if owners.setdefault(partition, member.member_id) != member.member_id:
                    self.fail(f"generation {generation}: {partition} is assigned twice")
        self.note(f"generation {generation}: {sorted(m.member_id[:12] for m in group.members)}")

    def _check_commits(self, late: set[TopicPartition]) -> None:
        for (topic, number), commit in self.cluster.offsets.committed(self.group).items():
            partition = TopicPartition(topic, number)
            life = self._life_of(topic, commit)
            found = self.partitions[partition].of(life)
            self._check_done(partition, commit, found)
            if commit.offset == found.committed:
                continue
            self.note(f"committed {number}: {commit.offset}" + (f" in life {life}" if life else ""))
            self.counts["commits"] += 1
            if commit.offset > found.watermark and not found.lossy:
                self.fail(f"{partition}: committed {commit.offset}, processed up to {found.watermark}")
            # Kafka deletes the offsets of a deleted topic: who hasn't heard of that begins, and commits, anew.
            may_fall = partition in late or found.lossy or life != self.life
            if commit.offset < found.committed and not may_fall:
                self.fail(f"{partition}: the commit went from {found.committed} back to {commit.offset}")
            found.committed = commit.offset

    def _check_done(self, partition: TopicPartition, commit: Any, found: Progress) -> None:
        """Holds that what a commit says is done beyond its offset is done."""
        text = commit_metadata.unpack(commit.metadata).done
        if not text or found.lossy:
            return
        for first, behind in DoneOffsets.of_text(text, commit.offset).ranges.tolist():
            undone = set(range(max(first, found.watermark), behind)) - found.done
            if undone:
                self.fail(
                    f"{partition}: committed as done beyond {commit.offset}: {sorted(undone)}, which are not"
                )

    def _life_of(self, topic: str, commit: Any) -> int:
        """The number of the topic that a commit is of, by the topic id that it has."""
        topic_id = commit_metadata.unpack(commit.metadata).topic_id
        if topic_id is None:
            return self.life
        if topic_id not in self._lives:
            self.fail(f"{topic}: the commit of {commit.offset} is of a topic id that it never had")
        return self._lives[topic_id]
