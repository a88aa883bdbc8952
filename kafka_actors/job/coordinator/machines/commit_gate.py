"""Decides whose commits count: all commits of a job pass here, because the broker can't tell worker A from worker B.

Workers offer entries, under the epoch of their grant. An entry is let through only under the epoch that its worker holds now, and
never lowers an offset (but for a declared reset, and for another topic of the same name, whose id tells). Each partition has three
values: the entry offered for the next commit, the one in flight, and what the broker acknowledged. What failed is offered again
unless something newer is, though nobody may wait for it any more: the progress of a worker that died counts.

That is why the gate gathers although the member's `CommitQueue` does, too: whether an entry is the furthest shows only in these
three values, while the queue sends the latest that was asked for and drops what nobody waits for. One commit of a job is with the queue at a
time, so what is merged here is not merged there again.

Theory of operation. Arrives: what workers offer, what the broker answered for the commit in flight
(`finished`), and which partitions the member got, gave away or lost (`baseline`, `give_up`, `forget`).
Decided: whose offer is refused, what the next commit has (`take`), and where the next holder of a partition
begins (`start_of`): at what the broker has acknowledged, never at what was only offered. A declared reset is
the one thing that lowers an offset; until it is acknowledged, no entry counts as committed. Workers may hear before the member that a topic
was made anew, and declare a reset, whose entry names the new id. When the member hears of it (`recreated`), what they have stays with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kafka_actors.errors import TopicRecreatedError
from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.job.lanes import Slice, SliceDone, slice_of, source
from kafka_actors.job.messages import CommitEntry, HeldReport
from kafka_actors.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommitGate"]


class CommitGate:
    """Filters and gathers the commits of a job's workers.

    `holder(worker, partition)` says under which epoch a worker holds a partition now, None if it does not.
    """

    def __init__(self, holder: Callable[[str, TopicPartition], tuple[int, int] | None]) -> None:
        self._holder = holder
        self._offered: dict[TopicPartition, CommitEntry] = {}
        self._in_flight: dict[TopicPartition, CommitEntry] = {}
        self._dealt: dict[TopicPartition, CommitEntry] = {}
        """Entries in flight of partitions that are dealt in slices."""
        self._slices: dict[TopicPartition, dict[TopicPartition, CommitEntry]] = {}
        """By partition: the last entry of each slice that went into an acknowledged commit, also of those in which it was dealt before."""
        self._rewinding: set[TopicPartition] = set()
        """Partitions with a declared reset that the broker has not acknowledged."""
        self._gone: dict[TopicPartition, CommitEntry] = {}
        """Entries of which it was found last that the topic of their name is another one now."""
        self.busy = False
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._former: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets committed last of topics that have been made anew since: a worker that has not heard of it stands there."""

    def baseline(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Takes the offsets that the group had committed when the partitions were assigned, as they are committed."""
        for partition, offset in committed.items():
            self._slices.pop(partition, None)
            if offset is None:
                self.committed.pop(partition, None)
            else:
                self.committed[partition] = offset

    def offer(self, worker: str, entries: Iterable[CommitEntry]) -> list[TopicPartition]:
        """Takes a worker's entries; returns the partitions refused because they are not its own any more."""
        refused = []
        for entry in entries:
            if not self.holds(worker, entry):
                refused.append(entry.partition)
            elif (
                entry.rewind
                and entry.partition not in self._rewinding
                and self._known(entry.partition) == entry
            ):
                continue  # told again, because the answer was lost: others have gone on since
            elif entry.rewind or entry.offset >= self._latest(entry):
                if isinstance(entry.partition, Slice):
                    self._withdraw_former(entry.partition)
                self._offered[entry.partition] = entry
                if entry.rewind:
                    self._rewinding.add(entry.partition)
        return refused

    def _withdraw_former(self, of: Slice) -> None:
        """Drops what is offered of the partition as it was dealt before."""
        former = [p for p in self._offered if source(p) == source(of) and _parts(p) != of.parts]
        for each in former:
            del self._offered[each]

    def holds(self, worker: str, entry: CommitEntry) -> bool:
        """Whether an entry's partition is this worker's, under its epoch."""
        return self._holder(worker, entry.partition) == entry.epoch

    def is_committed(self, entry: CommitEntry) -> bool:
        """Whether the broker has acknowledged this entry, or a later one of its partition."""
        if entry.partition in self._rewinding:
            return False
        if isinstance(entry.partition, Slice):
            known = self._known(entry.partition)
            return known is not None and (known.offset > entry.offset or _alike(known, entry))
        committed = self.committed.get(entry.partition)
        if committed is None:
            return False
        own = unpack(committed.metadata)
        if committed.offset == entry.offset and own.done != entry.done:
            return False
        return committed.offset >= entry.offset and _same(own.topic_id, entry.topic_id)

    def is_gone(self, entry: CommitEntry) -> bool:
        """Whether an entry can't be committed any more: the topic of its name is another one now."""
        return self._gone.get(entry.partition) == entry

    def _latest(self, entry: CommitEntry) -> int:
        """The newest offset of the entry's topic, -1 if there is none."""
        for entries in (self._offered, self._in_flight):
            if (known := entries.get(entry.partition)) is not None:
                return known.offset if _same(known.topic_id, entry.topic_id) else -1
        committed = self.start_of(entry.partition)
        if committed is None or not _same(unpack(committed.metadata).topic_id, entry.topic_id):
            return -1
        return committed.offset

    @property
    def waiting(self) -> bool:
        return bool(self._offered)

    @property
    def offered(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets that wait for the next commit, by partition or slice."""
        return {partition: _to_commit(entry) for partition, entry in self._offered.items()}

    def take(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything offered, as one OffsetCommit; one is in flight at a time, so it is empty while busy."""
        if self.busy:
            return {}
        self._in_flight, self._offered = self._offered, {}
        for unfounded in [p for p in self._in_flight if isinstance(p, Slice) and not self._has_base(p)]:
            self._gone[unfounded] = self._in_flight.pop(unfounded)
        dealt: dict[TopicPartition, list[Slice]] = {}
        for each in self._in_flight:
            if isinstance(each, Slice):
                dealt.setdefault(source(each), []).append(each)
        self._dealt = {partition: self._of_all_slices(partition, taken) for partition, taken in dealt.items()}
        self.busy = bool(self._in_flight)
        whole = {p: e for p, e in self._in_flight.items() if not isinstance(p, Slice)}
        return {p: _to_commit(e) for p, e in (whole | self._dealt).items()}

    def _of_all_slices(self, partition: TopicPartition, taken: list[Slice]) -> CommitEntry:
        """Merges what is known of the slices of a partition, of which these are in flight. One that has nothing new, or only what was of
        another topic, stands at what the group has committed; and none beyond where another one was reset to."""
        from .slice_commits import of_all_slices, up_to  # imports numpy, and most jobs have no slices

        reset = self._reset_to(partition)
        committed = self.committed.get(partition)
        if committed is not None:
            own, epoch = unpack(committed.metadata), committed.leader_epoch
            base = CommitEntry(
                partition, (0, 0), committed.offset, epoch, topic_id=own.topic_id, done=own.done
            )
        else:
            assert reset is not None  # see `_has_base`
            base = reset
        found = []
        for part in range(parts := taken[0].parts):
            each = slice_of(partition, part, parts)
            entry = self._in_flight.get(each) or self._known(each) or base
            if reset is None:
                counts = _same(entry.topic_id, base.topic_id) and entry.offset >= base.offset
                found.append(entry if counts else base)
            else:
                found.append(entry if entry.rewind else up_to(entry, reset))
        return of_all_slices(found)

    def _has_base(self, of: Slice) -> bool:
        """Whether it is known where slices stand that have offered nothing: their partition has a commit, as it had when it was dealt, or one
        of them was reset. A new incarnation may find neither, where the topic was made anew."""
        return source(of) in self.committed or self._reset_to(source(of)) is not None

    def _reset_to(self, partition: TopicPartition) -> CommitEntry | None:
        """Returns the lowest entry in flight of a slice of this partition that was reset."""
        reset = [e for p, e in self._in_flight.items() if source(p) == partition and e.rewind]
        return min(reset, key=lambda entry: entry.offset, default=None)

    def _known(self, partition: TopicPartition) -> CommitEntry | None:
        """Returns the last acknowledged entry of a slice."""
        return self._slices.get(source(partition), {}).get(partition)

    def finished(self, outcome: Mapping[TopicPartition, Exception | None]) -> list[Slice]:
        """Takes the broker's answer per partition. What failed is offered again unless something newer is there. Returns the slices whose
        reset is acknowledged: from now on others of their partitions begin there, and what they offer, or have offered, is of the log before."""
        reset = [
            each
            for each, entry in self._in_flight.items()
            if isinstance(each, Slice) and entry.rewind and outcome.get(source(each), KeyError()) is None
        ]
        for partition in set(map(source, reset)):
            self._begin_anew(partition, reset)
        for partition, entry in self._in_flight.items():
            error = outcome.get(source(partition), KeyError())
            if isinstance(error, TopicRecreatedError):
                self._gone[partition] = entry
            if error is not None:
                self._offered.setdefault(partition, entry)
                continue
            if isinstance(partition, Slice):
                merged = self._dealt.get(source(partition), entry)
                if _same(merged.topic_id, entry.topic_id):  # else it says nothing of the topic of now
                    self._slices.setdefault(source(partition), {})[partition] = entry
            else:
                self.committed[partition] = _to_commit(entry)
            if partition not in self._offered:
                self._rewinding.discard(partition)
        for partition, entry in self._dealt.items():
            if outcome.get(partition, KeyError()) is None:
                self.committed[partition] = _to_commit(entry)
                self._forget_passed(partition, entry.offset)
        self._in_flight, self._dealt, self.busy = {}, {}, False
        return reset

    def _begin_anew(self, partition: TopicPartition, reset: Collection[TopicPartition]) -> None:
        """Takes back what others of these slices have said of their partition, as far as it is of the log before."""
        from .slice_commits import up_to  # as above

        to = self._reset_to(partition)
        assert to is not None  # a slice was reset
        for each in [p for p in self._offered if source(p) == partition and p not in reset]:
            del self._offered[each]
            self._rewinding.discard(each)
        for entries in (self._in_flight, self._slices.get(partition, {})):
            for each in [p for p in entries if source(p) == partition and p not in reset]:
                entries[each] = up_to(entries[each], to)

    def committed_elsewhere(self, entries: Iterable[CommitEntry]) -> None:
        """Takes offsets that a worker has committed by itself, in a transaction. Late news of an older one changes nothing."""
        for entry in entries:
            known = self.committed.get(entry.partition)
            of_another = known is not None and not _same(unpack(known.metadata).topic_id, entry.topic_id)
            if known is None or entry.rewind or of_another or entry.offset >= known.offset:
                self.committed[entry.partition] = _to_commit(entry)

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """The member gave these away. What the broker has not acknowledged by then is not sent again: when they are back,
        others have gone on meanwhile."""
        gone = set(partitions)
        for each in [p for p in (*self._offered, *self._in_flight, *self._rewinding) if source(p) in gone]:
            self._offered.pop(each, None)
            self._in_flight.pop(each, None)
            self._rewinding.discard(each)
        self._gone = {p: entry for p, entry in self._gone.items() if source(p) not in gone}
        for partition in gone:
            self._slices.pop(partition, None)
            self._dealt.pop(partition, None)

    def recreated(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes that the topics of these were made anew: what was committed of them, or of slices in which they were dealt before, says nothing
        any more. What is offered is named by its id."""
        for partition in partitions:
            if (committed := self.committed.pop(partition, None)) is not None:
                self._former[partition] = committed
            self._slices.pop(partition, None)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """The member lost these: nothing about them is committed any more."""
        self.give_up(partitions)
        for partition in partitions:
            self.committed.pop(partition, None)
            self._former.pop(partition, None)

    def unconfirmed(self, held: Mapping[TopicPartition, HeldReport]) -> list[TopicPartition]:
        """The partitions of which more is offered, or reported as processed, than the broker has acknowledged."""
        reached = [(p, report.processed or -1, report.topic_id) for p, report in held.items()]
        reached += [(p, e.offset, e.topic_id) for p, e in {**self._offered, **self._in_flight}.items()]
        return sorted({source(each[0]) for each in reached if self._is_beyond(*each)})

    def _is_beyond(self, partition: TopicPartition, offset: int, topic_id: bytes | None) -> bool:
        """Whether an offset is further than what is acknowledged of its topic. No record is before offset 0."""
        for known in (self.start_of(partition), self._former.get(source(partition))):
            if known is not None and _same(unpack(known.metadata).topic_id, topic_id):
                return offset > known.offset
        return offset > 0

    def start_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Returns the offset where a new holder starts: the last one that the broker acknowledged, or None."""
        committed = self.committed.get(source(partition))
        known = self._known(partition)
        if known is None or (committed is not None and committed.offset > known.offset):
            return committed
        return _to_commit(known)

    def slices_done(self, partition: TopicPartition) -> list[SliceDone]:
        """Returns what is known to be done of a partition's slices, also of those in which it was dealt before: a new holder needn't do
        that again, though the commit of the whole partition may not say so."""
        return [
            SliceDone(p.part, p.parts, entry.offset, entry.leader_epoch, entry.done)
            for p, entry in self._slices.get(partition, {}).items()
            if isinstance(p, Slice)
        ]

    def _forget_passed(self, partition: TopicPartition, committed: int) -> None:
        """Forgets slices in which a partition was dealt before, once it is committed beyond what is known of them."""
        from .slice_commits import end_of  # as above

        parts = {_parts(p) for p in self._in_flight if source(p) == partition}
        known = self._slices.get(partition, {})
        for each in [
            p for p, entry in known.items() if _parts(p) not in parts and committed >= end_of(entry)
        ]:
            del known[each]

    def __repr__(self) -> str:
        return f"<CommitGate offered={len(self._offered)} in_flight={len(self._in_flight)} committed={len(self.committed)}>"


def _to_commit(entry: CommitEntry) -> OffsetAndMetadata:
    return OffsetAndMetadata(entry.offset, pack("", entry.topic_id, done=entry.done), entry.leader_epoch)


def _parts(partition: TopicPartition) -> int:
    return partition.parts if isinstance(partition, Slice) else 1


def _alike(one: CommitEntry, other: CommitEntry) -> bool:
    return one.offset == other.offset and one.done == other.done and _same(one.topic_id, other.topic_id)


def _same(one: bytes | None, other: bytes | None) -> bool:
    """Whether two offsets are of one topic, as far as is known."""
    return one is None or other is None or one == other
