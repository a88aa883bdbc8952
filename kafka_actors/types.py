"""Value types that every package uses. They are plain tuples, as other Kafka clients have them."""

from typing import NamedTuple

LATEST = -1
"""In place of a timestamp (ListOffsets) or of an offset (Spark's options): the end of the log."""
EARLIEST = -2
"""In the same places: the start of the log."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, the committer's note and the leader epoch (-1 if unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
