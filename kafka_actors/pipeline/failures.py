"""Failed records: those that a stage could not process, and the events that report them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from kafka_actors.events import Event, RecordsDeadLettered, RecordsSkipped

from .stages import OnError


class FailedRecord(NamedTuple):
    """Record that a stage could not process, by its number in the batch that was read, with the reason."""

    record: int
    stage: str
    reason: str


def once(failures: list[FailedRecord]) -> list[FailedRecord]:
    """The first failure of each record, in the order of records: several rows of one record may fail."""
    first: dict[int, FailedRecord] = {}
    for failure in failures:
        first.setdefault(failure.record, failure)
    return [first[record] for record in sorted(first)]


def of_policy(
    failures: Sequence[FailedRecord], policies: Mapping[str, OnError], policy: OnError
) -> list[FailedRecord]:
    """Failures in stages with this policy; `policies` are by stage name."""
    return [f for f in failures if policies[f.stage] == policy]


def events_of(
    failures: Sequence[FailedRecord], source: pa.RecordBatch, dead_letter_topic: str | None = None
) -> Iterator[Event]:
    """Events for records of `source` that failed, one for each stage and partition: dead-lettered to a topic, or skipped."""
    where = _place(source)
    for (stage, topic, partition), same in groupby(sorted(failures, key=where), key=where):
        found = list(same)
        first, last = (source.column("offset")[f.record].as_py() for f in (found[0], found[-1]))
        said = f"stage {stage}: {len(found)} records, the first: {found[0].reason}"
        if dead_letter_topic is None:
            yield RecordsSkipped(topic, partition, first, last, said)
        else:
            yield RecordsDeadLettered(topic, partition, first, last, len(found), dead_letter_topic, said)


def _place(source: pa.RecordBatch) -> Callable[[FailedRecord], tuple[str, str, int]]:
    topics, partitions = source.column("topic"), source.column("partition")

    def place(failure: FailedRecord) -> tuple[str, str, int]:
        topic, partition = topics[failure.record].as_py(), partitions[failure.record].as_py()
        return failure.stage, topic or "", -1 if partition is None else partition

    return place
