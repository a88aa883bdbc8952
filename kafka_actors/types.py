"""Value types that every package uses: plain tuples, as in other Kafka clients."""

from typing import NamedTuple

LATEST = -1
"""The end of the log, in place of a timestamp (ListOffsets) or an offset (Spark's options)."""
EARLIEST = -2
"""The start of the log, in the same places."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by the topic's name and the partition's number."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset to read next, the committer's metadata and the leader epoch (-1 if unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
