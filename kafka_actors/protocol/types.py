"""Value types that every package uses. They are plain tuples, as other Kafka clients have them."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, the committer's note and the leader epoch (-1 if unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
