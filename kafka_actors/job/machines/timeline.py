"""The timeline of a job: the last things that happened to it, each with its moment and a number; and the entries of its events.

The timeline is for people who look at a job: it has what changed for the job as a whole. So most events of single partitions have no
entry, the changes of one step are one entry for each worker and cause, and of many partitions only the number is given.

Theory of operation. Arrives: an event of the coordinator or the supervisor (`entry_of`); the coordinator also notes what
one step of its placement did (`entries_of_facts` in `coordinator/machines/placed.py`). Nothing is remembered, so an event
that is given twice has two entries: each side notes its own events only, and the supervisor takes over the coordinator's
entries by their numbers (`JobReport`). The caller adds the moment. Entries of the kinds "state" and "restart" have no
event: the supervisor writes them where it changes the state or replaces an actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from kafka_actors.events import (
    CoordinatorChanged,
    Event,
    NewSchemaSeen,
    NodeAnswers,
    NodeSilent,
    NoRoomForWorkers,
    PartitionNotRead,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PartitionStalled,
    Rebalanced,
    Rejoining,
    TransactionAborted,
    WorkersChanged,
)

__all__ = ["MOST_ENTRIES", "EntryText", "Timeline", "TimelineEntry", "entry_of", "named_partitions"]

MOST_ENTRIES = 200
EntryText = tuple[str, str]
"""Kind and text."""
NAMED = 3
"""Up to this many partitions are named; more are only counted."""


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """Something that happened to a job. `number` counts from 1; `at_s` is in seconds since 1970.

    `kind`: state (of the job; with the reason where it failed), rebalance (what the group gave and took),
    restart (an actor was replaced), workers (their number was changed), move (a worker is to give up
    partitions), drain (it has drained them), forced (it had not by the deadline), stall (a partition with
    records did not move), transaction (one was aborted) or schema (values by a new one have come).
    """

    number: int
    at_s: float
    kind: str
    text: str


class Timeline:
    """A bounded list of entries: the oldest go first."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self._entries: deque[TimelineEntry] = deque(maxlen=most)
        self._last = 0

    def note(self, kind: str, text: str, now_s: float) -> None:
        """Adds an entry; the kinds are those of `TimelineEntry`, and `now_s` is in seconds since 1970."""
        self._last += 1
        self._entries.append(TimelineEntry(number=self._last, at_s=now_s, kind=kind, text=text))

    def after(self, number: int = 0) -> list[TimelineEntry]:
        """Entries with a higher number, the oldest first."""
        return [entry for entry in self._entries if entry.number > number]


# ---------------------------------------------------------------- entries of events


def entry_of(event: Event) -> EntryText | None:
    """Makes the entry of an event; None where it has none, as most events of single partitions. The caller logs an event in any
    case, so the timeline is no full record."""
    match event:
        case Rejoining(reason=reason):
            return "rebalance", f"joins the group: {reason}"
        case PartitionsAssigned(generation=generation, partitions=given):
            return "rebalance", f"the group gave {named_partitions(given)} in generation {generation}"
        case PartitionsRevoked(generation=generation, partitions=taken):
            return "rebalance", f"the group took {named_partitions(taken)} in generation {generation}"
        case PartitionsLost(partitions=lost, reason=reason):
            return "rebalance", f"{named_partitions(lost)} lost: {reason}"
        case Rebalanced(generation=generation, seconds=seconds):
            return "rebalance", f"generation {generation} is there after {seconds:.1f} s"
        case CoordinatorChanged(node_id=broker):
            return "rebalance", f"broker {broker} coordinates the group"
        case PartitionStalled(topic=topic, partition=partition, seconds=seconds, reason=reason):
            return "stall", f"{topic}-{partition} has not moved for {seconds:.0f} s: {reason}"
        case PartitionNotRead(topic=topic, partition=partition, seconds=seconds, reason=reason):
            return "stall", f"{topic}-{partition} has not been read for {seconds:.0f} s: {reason}"
        case TransactionAborted(worker=worker, cause=cause, records=records):
            return "transaction", f"{worker} lost its transaction, {records:,} records come again: {cause}"
        case NewSchemaSeen(stage=stage, schema=schema, reader=reader):
            return (
                "schema",
                f"{stage}: first values by schema {schema}, which is new; they are read by {reader}",
            )
        case WorkersChanged(before=before, after=after, reason=reason):
            return "workers", f"{before} → {after}: {reason}"
        case NoRoomForWorkers(workers=workers, placed=placed, reason=reason):
            return "workers", f"{placed} of {workers} have a place: {reason}"
        case NodeSilent(node=node, seconds=seconds, workers=workers):
            there = f" ({', '.join(workers)})" if workers else ""
            return "stall", f"no actor on node {node[:8]}{there} has answered for {seconds:g} s"
        case NodeAnswers(node=node):
            return "stall", f"node {node[:8]} answers again"
    return None


def named_partitions(partitions: Iterable[tuple[str, int]]) -> str:
    """Names partitions in order, or counts them where there are many."""
    every = sorted(partitions)
    if len(every) > NAMED:
        return f"{len(every)} partitions"
    return ", ".join(f"{topic}-{number}" for topic, number in every) or "no partitions"
