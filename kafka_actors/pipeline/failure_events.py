"""Records that were taken out, told as events: one for those of a stage and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa

from kafka_actors.events import Event, RecordsDeadLettered, RecordsSkipped

from .rows import FailedRecord
from .stages import OnError


def of_policy(
    failures: Sequence[FailedRecord], policies: Mapping[str, OnError], policy: OnError
) -> list[FailedRecord]:
    """Those of stages with this policy; `policies` are by the stages' names."""
    return [f for f in failures if policies[f.stage] == policy]


def events_of(
    failures: Sequence[FailedRecord], source: pa.RecordBatch, dead_letter_topic: str | None = None
) -> Iterator[Event]:
    """`failures` of records in `source`: sent to the topic that is named, or else skipped."""
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
