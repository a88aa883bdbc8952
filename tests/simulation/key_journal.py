"""Journal of calls that overlap: records wait for those of their key only, and workers share partitions."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kafka_actors.types import TopicPartition

from .job_journal import Journal, PartitionJournal

KEYS = 5


def key_of(offset: int) -> bytes | None:
    """Key of the record at an offset; each sixth has none."""
    return None if offset % 6 == 5 else b"k%d" % (offset * 7 % KEYS)


class KeyJournal:
    """Calls of one group, checked with each entry beside what `Journal` has."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._keys: dict[tuple[TopicPartition, bytes], PartitionJournal] = defaultdict(PartitionJournal)
        self._in_hand: dict[tuple[str, TopicPartition, Any], list[bytes]] = defaultdict(list)
        """Keys of the calls that each worker is in, by the epoch under which they began: one that hangs outlasts its drain."""

    def begins(
        self, member: str, worker: str, epoch: Any, partition: TopicPartition, life: int, offsets: list[int]
    ) -> None:
        """Checks a call that begins. Arguments as of `Journal.begins`."""
        journal = self._journal
        found = journal.partitions[partition]
        progress, own = found.of(life), set(offsets)
        journal.counts["calls by key"] += 1
        journal.enters(worker, partition)
        journal.note(f"call {worker} {partition.partition} {offsets} {epoch}")
        keys = {offset: key for offset in offsets if (key := key_of(offset)) is not None}
        unheard = progress.lossy or journal.has_not_heard(found, worker)
        for offset, key in keys.items():
            before = set(range(progress.watermark, offset)) - progress.done - own
            missed = sorted(each for each in before if key_of(each) == key)
            if missed and not progress.lossy:
                journal.fail(f"{partition}: {worker} begins {offset}, and {missed} of its key are not done")
        in_hand = self._in_hand[worker, partition, epoch]
        for key in set(keys.values()):
            if key in in_hand and not unheard:
                journal.fail(
                    f"{partition}: {worker} begins a call of a key that it is in a call of: {offsets}"
                )
            lane = self._keys[partition, key]
            lane.unawaited = found.unawaited
            journal.check_owner(lane, member, worker, epoch, partition)
        in_hand += sorted(set(keys.values()))

    def ended(self, worker: str, epoch: Any, partition: TopicPartition, offsets: list[int]) -> None:
        """Takes that a call has returned, or failed."""
        self._journal.leaves(worker, partition)
        in_hand = self._in_hand[worker, partition, epoch]
        for key in {key for offset in offsets if (key := key_of(offset)) is not None}:
            in_hand.remove(key)
