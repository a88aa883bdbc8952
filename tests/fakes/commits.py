"""A group's commits as any other client writes and sees them, with their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka


@contextmanager
def _client(servers: str, group: str) -> Iterator[confluent_kafka.Consumer]:
    client = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        yield client
    finally:
        client.close()


def committed_by(servers: str, group: str, topic: str, partitions: int) -> dict[int, tuple[int, str | None]]:
    """Offset and metadata of each partition that has any."""
    with _client(servers, group) as client:
        wanted = [confluent_kafka.TopicPartition(topic, p) for p in range(partitions)]
        return {
            f.partition: (f.offset, f.metadata) for f in client.committed(wanted, timeout=10) if f.offset >= 0
        }


def commit(servers: str, group: str, topic: str, partitions: int, offset: int, metadata: str) -> None:
    """Commits for a group without members: as another client, or what reaches the coordinator late."""
    with _client(servers, group) as client:
        made = [confluent_kafka.TopicPartition(topic, p, offset, metadata) for p in range(partitions)]
        for done in client.commit(offsets=made, asynchronous=False):
            assert done.error is None, done.error
