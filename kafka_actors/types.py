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


class ConsumerGroupMetadata(NamedTuple):
    """A consumer as a member of its group (KIP-447): offsets that a transaction commits for it are refused once it no longer is.

    The generation is -1 and the member id empty where partitions are assigned by hand.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that hold for a transactional id (KIP-98)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
