"""Commits of a partition that is dealt in slices: one offset, and what is done beyond it, for all of them.

A worker passes over the records of other slices, so what it offers is true of its own records only. Of the partition is done what is done in
each slice: the offset is the lowest of all slices, and beyond it counts what every one of them has done or passed over. A slice that isn't
read as far as another one holds up what the other has done since; that is why workers keep within `max_in_flight_records` of the watermark
of the partition.

The leader epoch is the lowest of all slices. Where one stands in a log that was cut since, and its worker hasn't found that, whoever begins
with this commit finds the cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets
from kafka_actors.job.lanes import source
from kafka_actors.job.messages import CommitEntry

__all__ = ["done_in_each", "end_of", "of_all_slices", "up_to"]


def of_all_slices(entries: Sequence[CommitEntry]) -> CommitEntry:
    """Returns the entry of a partition. `entries`: one for each of its slices."""
    lowest = min(entries, key=lambda entry: entry.offset)
    done = done_in_each([_progress(entry) for entry in entries], lowest.offset)
    rewind = any(entry.rewind for entry in entries)
    text = done.text(lowest.offset) if done else ""
    # Of an offset below others: in one log no slice has an earlier epoch, and one that does stands in the log of before.
    epoch = min((entry.leader_epoch for entry in entries if entry.leader_epoch >= 0), default=-1)
    partition = source(lowest.partition)
    return replace(lowest, partition=partition, leader_epoch=epoch, rewind=rewind, done=text)


def done_in_each(slices: Sequence[tuple[int, DoneOffsets]], lowest: int) -> DoneOffsets:
    """Returns the offsets from `lowest` on that are below each slice's offset, or among what it has done beyond, with the lowest leader
    epoch: a record of a later one may have taken another's place."""
    edges: list[tuple[int, int]] = []
    for offset, done in slices:
        edges += [(lowest, 1), (offset, -1)]
        for first, behind in done.behind(offset).ranges.tolist():
            edges += [(first, 1), (behind, -1)]
    at, where = np.unique(np.array([edge[0] for edge in edges], np.int64), return_inverse=True)
    change = np.zeros(len(at), np.int64)
    np.add.at(change, where, [edge[1] for edge in edges])
    in_all = np.cumsum(change)[:-1] == len(slices)
    ranges = np.stack((at[:-1][in_all], at[1:][in_all]), axis=1)
    if not len(ranges):
        return NOTHING_DONE
    # Neighbours are one range.
    apart = np.flatnonzero(ranges[1:, 0] != ranges[:-1, 1])
    firsts, behinds = np.append(0, apart + 1), np.append(apart, len(ranges) - 1)
    epoch = min(done.leader_epoch for _, done in slices)
    return DoneOffsets(np.stack((ranges[firsts, 0], ranges[behinds, 1]), axis=1), epoch)


def up_to(entry: CommitEntry, reset: CommitEntry) -> CommitEntry:
    """Returns what of a slice's entry counts where another slice was reset: nothing beyond its offset, and nothing of another topic."""
    of_one = None in (entry.topic_id, reset.topic_id) or entry.topic_id == reset.topic_id
    if not of_one or entry.offset >= reset.offset:
        offset, epoch, topic_id = reset.offset, reset.leader_epoch, reset.topic_id
        return replace(entry, offset=offset, leader_epoch=epoch, topic_id=topic_id, done="")
    offset, done = _progress(entry)
    done = done.before(reset.offset)
    return replace(entry, done=done.text(offset) if done else "")


def end_of(entry: CommitEntry) -> int:
    """Returns the offset behind the last one that is known to be done."""
    offset, done = _progress(entry)
    return done.end(offset)


def _progress(entry: CommitEntry) -> tuple[int, DoneOffsets]:
    done = DoneOffsets.of_text(entry.done, entry.offset) if entry.done else NOTHING_DONE
    return entry.offset, done or DoneOffsets((), entry.leader_epoch)
