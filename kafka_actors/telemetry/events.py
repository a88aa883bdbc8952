"""Counters of events: each event that is logged and has an instrument is counted too."""

from __future__ import annotations

from kafka_actors.events import (
    BadBatchSkipped,
    Event,
    EventSink,
    NoCommittedOffset,
    OffsetReset,
    PartitionNotRead,
    PartitionStalled,
    RecordsDeadLettered,
    RecordsSkipped,
)

from .attributes import of_partition
from .instruments import BAD_BATCHES, ERROR_TYPE, FAILED_MESSAGES, OFFSET_RESETS, STALLS
from .recorder import Recorder

__all__ = ["counted", "counting"]


def counting(recorder: Recorder, group: str | None, sink: EventSink) -> EventSink:
    """Returns a sink that counts each event and passes it on to `sink`."""

    def take(event: Event) -> None:
        counted(recorder, group, event)
        sink(event)

    return take


def counted(recorder: Recorder, group: str | None, event: Event) -> None:
    """Counts one event. Events without an instrument are ignored."""
    match event:
        case OffsetReset(topic=topic, partition=number, reason=reason):
            recorder.add(OFFSET_RESETS, 1, (*of_partition(group, topic, number), ("reason", reason)))
        case NoCommittedOffset(topic=topic, partition=number):
            recorder.add(OFFSET_RESETS, 1, (*of_partition(group, topic, number), ("reason", "no_commit")))
        case BadBatchSkipped(topic=topic, partition=number, kind=kind):
            recorder.add(BAD_BATCHES, 1, (*of_partition(group, topic, number), (ERROR_TYPE, kind)))
        case RecordsSkipped(topic=topic, partition=number, first_offset=first, last_offset=last):
            # Offsets, where compaction may have left fewer records.
            recorder.add(
                FAILED_MESSAGES,
                last - first + 1,
                (*of_partition(group, topic, number), ("outcome", "skipped")),
            )
        case RecordsDeadLettered(topic=topic, partition=number, records=records):
            recorder.add(
                FAILED_MESSAGES, records, (*of_partition(group, topic, number), ("outcome", "dead_lettered"))
            )
        case (
            PartitionStalled(topic=topic, partition=number) | PartitionNotRead(topic=topic, partition=number)
        ):
            recorder.add(STALLS, 1, of_partition(group, topic, number))
        case _:
            pass
