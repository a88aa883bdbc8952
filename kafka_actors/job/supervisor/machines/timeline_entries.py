"""Timeline entries, kind and text, of a job's events. `kafka_actors.job.machines.timeline.TimelineEntry` has the kinds.

The timeline is for people who look at a job: it has what changed for the job as a whole. So most events of single partitions have no
entry, the changes of one step are one entry for each worker and cause, and of many partitions only the number is given.

Arrives: an event of the coordinator or the supervisor (`entry_of`), or what one step of the placement did (`entries_of_facts`).
Nothing is remembered, so an event that is given twice has two entries: each side notes its own events only, and the supervisor
takes over the coordinator's entries by their numbers (`JobReport`). The caller adds the moment. Entries of the kinds "state" and
"restart" have no event: the supervisor writes them where it changes the state or replaces an actor.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_actors.events import (
    CoordinatorChanged,
    Event,
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
    WorkersChanged,
)
from kafka_actors.job.coordinator.machines.placement import DrainEnd, Withdrawal

__all__ = ["entries_of_facts", "entry_of"]

EntryText = tuple[str, str]
"""Kind and text."""
NAMED = 3
"""Up to this many partitions are named; more are only counted."""


def entry_of(event: Event) -> EntryText | None:
    """Makes the entry of an event; None where it has none, as most events of single partitions. The caller logs an event in any
    case, so the timeline is no full record."""
    match event:
        case Rejoining(reason=reason):
            return "rebalance", f"joins the group: {reason}"
        case PartitionsAssigned(generation=generation, partitions=given):
            return "rebalance", f"the group gave {_named(given)} in generation {generation}"
        case PartitionsRevoked(generation=generation, partitions=taken):
            return "rebalance", f"the group took {_named(taken)} in generation {generation}"
        case PartitionsLost(partitions=lost, reason=reason):
            return "rebalance", f"{_named(lost)} lost: {reason}"
        case Rebalanced(generation=generation, seconds=seconds):
            return "rebalance", f"generation {generation} is there after {seconds:.1f} s"
        case CoordinatorChanged(node_id=broker):
            return "rebalance", f"broker {broker} coordinates the group"
        case PartitionStalled(topic=topic, partition=partition, seconds=seconds, reason=reason):
            return "stall", f"{topic}-{partition} has not moved for {seconds:.0f} s: {reason}"
        case PartitionNotRead(topic=topic, partition=partition, seconds=seconds, reason=reason):
            return "stall", f"{topic}-{partition} has not been read for {seconds:.0f} s: {reason}"
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


def entries_of_facts(facts: Iterable[Withdrawal | DrainEnd]) -> list[EntryText]:
    """Makes the entries of one step's changes inside the job: one for each worker and cause."""
    together: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
    for fact in facts:
        if isinstance(fact, Withdrawal):
            key = "move", fact.worker, fact.cause.replace("_", " ")
        else:
            key = "forced" if fact.outcome == "forced" else "drain", fact.worker, ""
        together.setdefault(key, []).append(fact.partition)
    return [
        (kind, _of_worker(kind, worker, cause, _named(of))) for (kind, worker, cause), of in together.items()
    ]


def _of_worker(kind: str, worker: str, cause: str, partitions: str) -> str:
    """Makes the text of one entry about a worker. "forced" is one that was still at work at its deadline: the partition was taken
    from it, and the records that it has not committed are processed again elsewhere."""
    match kind:
        case "move":
            return f"{worker} gives up {partitions}: {cause}"
        case "drain":
            return f"{worker} has drained {partitions}"
    return f"{worker} had not drained {partitions} by the deadline"


def _named(partitions: Iterable[tuple[str, int]]) -> str:
    """Names partitions in order, or counts them where there are many."""
    every = sorted(partitions)
    if len(every) > NAMED:
        return f"{len(every)} partitions"
    return ", ".join(f"{topic}-{number}" for topic, number in every) or "no partitions"
