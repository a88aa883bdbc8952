"""Topics of `FakeKafka`: creating, filling, reading and shortening them, without a client."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kafka_actors.records.batch import HEADER_SIZE
from kafka_actors.records.kernel import ACTIVE

from .machines.cluster_state import FakeNode, FakePartition, FakeTopic
from .machines.fake_cluster import FakeCluster
from .machines.record_batches import BatchRecord, parse

K = TypeVar("K", int, str)
T = TypeVar("T")
V = TypeVar("V")


def node_of(cluster: FakeCluster, broker_id: int) -> FakeNode:
    """Returns a broker. Raises `ValueError` with those that there are."""
    return _found("broker", cluster.state.nodes, broker_id)


def topic_of(cluster: FakeCluster, name: str) -> FakeTopic:
    """Returns a topic. Raises `ValueError` with those that there are."""
    return _found("topic", cluster.state.topics, name)


def partition_of(cluster: FakeCluster, name: str, index: int) -> FakePartition:
    """Returns a partition. Raises `ValueError` with how many there are."""
    partitions = topic_of(cluster, name).partitions
    if index not in range(len(partitions)):
        raise ValueError(f"topic {name!r} has no partition {index!r}: it has {len(partitions)}, from 0 on")
    return partitions[index]


def _found(kind: str, there: Mapping[K, V], key: K) -> V:
    if key not in there:
        raise ValueError(
            f"there is no {kind} {key!r}: {kind}s are {', '.join(map(repr, sorted(there))) or 'none'}"
        )
    return there[key]


class FakeTopics(ABC):
    """Operations on the topics of a cluster. `_call` runs a function with the cluster where that is driven. `ValueError` where the cluster
    does not have what is named, or Kafka would refuse it."""

    @abstractmethod
    def _call(self, function: Callable[[FakeCluster], T]) -> T: ...

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replica_assignment: list[list[int]] | None = None,
    ) -> str:
        """Creates a topic and returns its name. `ValueError` where Kafka would refuse it.

        `replica_assignment` lists the broker ids of each partition, the leader first, in place of the two numbers.
        """
        configs = {key: str(value) for key, value in (config or {}).items()}

        def create(cluster: FakeCluster) -> str:
            if replica_assignment:
                cluster.topics.check_replicas(replica_assignment, len(replica_assignment[0]))
            assignment = replica_assignment or cluster.state.place(partitions, replication_factor)
            cluster.state.create_topic(name, assignment, configs)
            return name

        return self._call(create)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records and committed offsets."""
        self._call(lambda c: c.topics.remove(topic_of(c, name).name))

    def recreate_topic(self, name: str, partitions: int | None = None) -> None:
        """Deletes a topic and creates it again at once, under another id and without records."""

        def again(cluster: FakeCluster) -> None:
            old = topic_of(cluster, name)
            assignment = [partition.replicas for partition in old.partitions]
            if partitions is not None:
                assignment = cluster.state.place(partitions, len(assignment[0]))
            cluster.topics.remove(name)
            cluster.state.create_topic(name, assignment, old.configs)

        self._call(again)

    def add_partitions(self, name: str, total: int) -> None:
        """Lets a topic have `total` partitions, more than it has."""

        def add(cluster: FakeCluster) -> None:
            topic = topic_of(cluster, name)
            more = total - (count := len(topic.partitions))
            if more <= 0:
                raise ValueError(f"topic {name!r} has {count} partitions: give more, not {total}")
            cluster.state.add_partitions(topic, cluster.state.place(more, len(topic.partitions[0].replicas)))

        self._call(add)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int = 0,
        keys: Sequence[bytes | str | None] | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends records to a partition as one batch, without a client; returns the first one's offset."""
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000  # wall clock: of records
        writer = ACTIVE.writer(HEADER_SIZE)
        for index, value in enumerate(values):
            key = keys[index] if keys is not None else None
            writer.append_one(_bytes(key), _bytes(value), None, timestamp_ms, 1 << 30)
        batch = parse(bytes(writer.seal(-1, -1, -1)))

        def append(cluster: FakeCluster) -> int:
            found = partition_of(cluster, topic, partition)
            limits = cluster.state.topics[topic].limits(cluster.state.release)
            done = found.log.append(batch, found.leader_epoch, limits, cluster.state.wall_ms)
            cluster.state.changed.add((topic, partition))
            return done.base_offset

        return self._call(append)

    def records(self, topic: str, partition: int = 0, *, read_committed: bool = False) -> list[BatchRecord]:
        """Returns the records of a partition: `offset`, `timestamp` in ms, `key`, `value`, `headers`.

        read_committed: without those of transactions that are open or were aborted.
        """
        return self._call(lambda c: partition_of(c, topic, partition).log.records(committed=read_committed))

    def leaders(self, topic: str) -> dict[int, int]:
        """Returns partition → id of its leader, -1 for none."""
        return self._call(lambda c: {p.index: p.leader for p in topic_of(c, topic).partitions})

    def beginning_offsets(self, *topics: str) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) → first offset."""
        return self._logs(topics, lambda p: p.log.start_offset)

    def end_offsets(self, *topics: str) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) → offset behind the last record."""
        return self._logs(topics, lambda p: p.log.end_offset)

    def _logs(self, topics: Iterable[str], of: Callable[[FakePartition], int]) -> dict[tuple[str, int], int]:
        return self._call(
            lambda c: {(name, p.index): of(p) for name in topics for p in topic_of(c, name).partitions}
        )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Deletes the records before an offset, up to the end of the log, as retention or DeleteRecords does."""
        self._change(topic, partition, lambda p: p.log.delete_before(before), before)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Loses the records from an offset on, as an unclean election does: the partition has a new leader epoch after it."""

        def truncate(found: FakePartition) -> None:
            found.log.truncate(offset)
            found.lead(found.leader)

        self._change(topic, partition, truncate, offset)

    def compact(self, topic: str, partition: int = 0, *, keep_tombstones: bool = True) -> None:
        """Keeps of each key its last record, in all but the partition's last batch."""
        self._change(topic, partition, lambda p: p.log.compact(keep_tombstones=keep_tombstones))

    def _change(
        self, topic: str, partition: int, change: Callable[[FakePartition], object], offset: int = 0
    ) -> None:
        def run(cluster: FakeCluster) -> None:
            found = partition_of(cluster, topic, partition)
            if not 0 <= offset <= found.log.end_offset:
                raise ValueError(
                    f"{offset} is no offset of {topic}-{partition}, which ends at {found.log.end_offset}"
                )
            change(found)
            cluster.state.changed.add((topic, partition))

        self._call(run)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
