"""Markers: the offsets by which a task of a transactional write knows what an earlier try of it has committed.

Fencing alone doesn't de-duplicate: a task that committed before the driver died is written again by the replayed micro-batch. So each
task's transaction also commits a marker for a group of its own (`TaskName.group`). Its offset is the number of the micro-batch, its metadata
have the number of rows and a digest of the source's split options. A task

1. fences what was there before (InitProducerId): from then on no older try can commit;
2. reads its marker, once no transaction moves it (`require_stable`, KIP-447);
3. is done where the marker is at its batch, and writes where there is none or an older one. A marker that is further on says that the
   checkpoint is older than what was written, as a restored copy is: whatever came since would be lost in silence.

A task whose number wasn't written before has no marker to compare with. So the first task of a micro-batch in each process also reads under which
split options that was begun, from one group for all tasks (`TaskName.splits_group`), and notes its own there before any row is sent: then
every task of a replay under other ones fails before it writes.

There is a group for each partition of the plan, because brokers refuse offsets of partitions that don't exist, and a plan may have
more partitions than the topic. The offset is that of partition 0.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec
from msgspec import Struct, field

from kafka_actors.base import decoders
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

PREFIX = "kafka_actors-"
_GROUP = re.compile(
    rf"{PREFIX}[0-9a-f]{{8}}(-?[0-9a-f]{{4}}){{3}}-?[0-9a-f]{{12}}-[a-zA-Z0-9._+-]+-([0-9]+|splits)"
)
SPLIT_OPTIONS = ("minpartitions", "maxrecordsperpartition")
"""Options of a source, in lower case, by which the same offsets are split into tasks."""


def is_marker_group(group_id: str) -> bool:
    """Whether a group is one of markers, by its name."""
    return _GROUP.fullmatch(group_id) is not None


class WriteName(Struct, frozen=True):
    """One write: a micro-batch of a query, or a batch, whose `batch` is 0. `query` is the query's id, or one that was made when the batch
    was planned; `checkpoint` the query's, where it is known, and None in a batch."""

    query: str
    batch: int
    checkpoint: str | None = None
    streaming: bool = True

    def task(self, sink: str, topic: str, partition: int) -> TaskName:
        """The task of this partition of the plan. `sink` is the sink's name among those of the plan, `topic` the one whose partition 0 has
        the markers."""
        return TaskName(self, sink, topic, partition)


class TaskName(Struct, frozen=True):
    """One task of a write to one sink. Its tries, and those of the same task of other micro-batches, have the same transactional id and group."""

    write: WriteName
    sink: str
    topic: str
    partition: int

    @property
    def group(self) -> str:
        """The group of the marker, which is also the transactional id."""
        return f"{PREFIX}{self.write.query}-{self.sink}-{self.partition}"

    @property
    def splits_group(self) -> str:
        """The group that has the split options of the micro-batch, for all tasks of the sink."""
        return f"{PREFIX}{self.write.query}-{self.sink}-splits"

    @property
    def marker(self) -> TopicPartition:
        """The partition under which the marker is committed."""
        return TopicPartition(self.topic, 0)

    def __str__(self) -> str:
        of = f"micro-batch {self.write.batch} of query" if self.write.streaming else "the write"
        return f"task {self.partition} of {of} {self.write.query}"


class TaskMarker(Struct, frozen=True):
    """Metadata of a marker, which are read by later versions, too. `splits` is a `splits_digest`."""

    rows: int
    splits: str
    form: int = field(default=1, name="kafka-actors-marker")

    def committed(self, batch: int) -> OffsetAndMetadata:
        """The offset to commit."""
        return OffsetAndMetadata(batch, msgspec.json.encode(self).decode())


_decoder = decoders.json(TaskMarker)


class TaskVerdict(Enum):
    """Decisions about a task."""

    WRITE = "write"
    DONE = "done"


def verdict_of(
    task: TaskName, found: OffsetAndMetadata | None, splits: str
) -> tuple[TaskVerdict, TaskMarker | None]:
    """Decides by the marker that was found whether a task has to write; where it was done before, with what was noted of it then.

    Raises `ConfigError` for a marker beyond the task's micro-batch, and for one of other split options.
    """
    if not _at_its_batch(task, found, splits, task.group):
        return TaskVerdict.WRITE, None
    assert found is not None
    return TaskVerdict.DONE, _decoded(task, found.metadata, task.group)


def splits_to_note(task: TaskName, found: OffsetAndMetadata | None, splits: str) -> OffsetAndMetadata | None:
    """The split options to note for a micro-batch before its first row is sent, None where they are. Raises as `verdict_of`."""
    if _at_its_batch(task, found, splits, task.splits_group):
        return None
    return TaskMarker(0, splits).committed(task.write.batch)


def _at_its_batch(task: TaskName, found: OffsetAndMetadata | None, splits: str, group: str) -> bool:
    """Whether what was found in a group is of the task's micro-batch."""
    batch = task.write.batch
    if found is None or found.offset < batch:
        return False
    if found.offset > batch:
        where = task.write.checkpoint or "of the query"
        raise ConfigError(
            "checkpointLocation",
            f"the checkpoint {where} is at micro-batch {batch}, and partition {task.partition} of query {task.write.query} was "
            f"written up to micro-batch {found.offset} already: it is an older copy, or another driver runs this query; go on with "
            "the newest one, or begin with a new checkpoint and the offsets to start from",
        )
    if _decoded(task, found.metadata, group).splits != splits:
        raise ConfigError(
            "minPartitions",
            f"{task} was begun under other split options of its source (minPartitions, maxRecordsPerPartition), or with other sinks, so "
            "its rows are others now: finish this micro-batch with the former ones, and change them then",
        )
    return True


def _decoded(task: TaskName, metadata: str, group: str) -> TaskMarker:
    try:
        return _decoder.decode(metadata)
    except decoders.UNREADABLE:
        raise UsageError(
            f"the marker of {task} is not readable ({metadata[:80]!r}): group {group} has offsets that others committed"
        ) from None


def check_rows(task: TaskName, marker: TaskMarker, rows: int) -> None:
    """Checks that a task that was done before has the same rows again. Raises `UsageError` with both numbers."""
    if rows != marker.rows:
        raise UsageError(
            f"{task} wrote {marker.rows} rows, and when it is run again there are {rows}: its plan doesn't give the same rows again, "
            "such as with random numbers, other code, or records that are gone"
        )


def splits_digest(sources: Iterable[Mapping[str, str]], sinks: Iterable[object] = ()) -> str:
    """Digest of a plan's sources in their order, of each those of its options by which it is split, and of the plan's sinks in theirs: what
    an unfinished micro-batch has to go on with."""
    known = [
        sorted((key.lower(), value.strip()) for key, value in options.items() if _splits(key))
        for options in sources
    ]
    return hashlib.sha256(json.dumps([known, *map(str, sinks)]).encode()).hexdigest()[:16]


def _splits(option: str) -> bool:
    return option.lower() in SPLIT_OPTIONS
