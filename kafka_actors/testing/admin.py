"""Administration of a test cluster: topics, leaders, coordinators and offsets through confluent-kafka's AdminClient, brokers and groups by
requests that are encoded here by hand, in their last classic (non-flexible) versions.

The requests don't use `kafka_actors.protocol` on purpose, so that tests of that package are checked independently.
confluent-kafka's AdminClient is not used for them, because it sometimes ends the process by a segmentation fault while a
group's coordinator is loading (2.16.1, ListConsumerGroupOffsets).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_LIST_OFFSETS, _METADATA, _OFFSET_FETCH, _FIND_COORDINATOR, _DESCRIBE_GROUPS = 2, 3, 9, 10, 15
COORDINATOR_MOVING = {14, 15, 16}
"""Error codes to be retried, perhaps at another broker: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR."""


class _RequestFailed(RuntimeError):
    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} was answered with error code {code}")
        self.code = code


class GroupRequestFailed(_RequestFailed):
    """Raised when a broker answers a group request with an error code."""


class TopicRequestFailed(_RequestFailed):
    """Raised when a broker answers a request for a topic with an error code."""


@dataclass(frozen=True)
class GroupMember:
    """A member of a classic group, as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    partitions: frozenset[tuple[str, int]]


@dataclass(frozen=True)
class GroupDescription:
    """A classic group: `state` is Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""

    state: str
    protocol: str
    members: list[GroupMember]


def list_brokers(address: tuple[str, int]) -> set[int]:
    """Sends Metadata v1 for no topic. Returns the ids of the brokers that this one knows as live."""
    return set(_brokers(_ask(address, _METADATA, 1, struct.pack(">i", 0), timeout=2.0)))


def find_leaders(address: tuple[str, int], topic: str) -> dict[int, tuple[int, tuple[str, int] | None]]:
    """Sends Metadata v1 for one topic. Returns partition → its leader's broker id, -1 for none, and address, None where no live
    broker leads it."""
    answer = _ask(address, _METADATA, 1, struct.pack(">i", 1) + _string(topic), timeout=2.0)
    brokers = _brokers(answer)
    answer.skip(8)  # controller, number of topics
    code = answer.int16()
    answer.string()
    answer.skip(1)  # whether it is internal
    leaders = {}
    for _ in range(answer.int32()):
        answer.skip(2)
        partition, leader = answer.int32(), answer.int32()
        answer.skip(4 * answer.int32())  # replicas
        answer.skip(4 * answer.int32())  # in-sync replicas
        leaders[partition] = leader, brokers.get(leader)
    if code and not leaders:
        raise TopicRequestFailed(f"Metadata of {topic!r}", code)
    return leaders


def ask_offsets(
    address: tuple[str, int], topic: str, partitions: Iterable[int], timestamp: int, isolation_level: int = 0
) -> dict[tuple[str, int], int]:
    """Sends ListOffsets v2 to a leader, with timestamp -1 for the latest offset and -2 for the earliest. Returns (topic, partition) →
    offset."""
    wanted = [struct.pack(">iq", partition, timestamp) for partition in partitions]
    head = struct.pack(">ibi", -1, isolation_level, 1) + _string(topic) + struct.pack(">i", len(wanted))
    answer = _ask(address, _LIST_OFFSETS, 2, head + b"".join(wanted), timeout=5.0)
    answer.skip(8)  # throttle time, number of topics
    answer.string()
    offsets = {}
    for _ in range(answer.int32()):
        partition = answer.int32()
        if code := answer.int16():
            raise TopicRequestFailed(f"ListOffsets of {topic}-{partition}", code)
        answer.skip(8)  # timestamp
        offsets[topic, partition] = answer.int64()
    return offsets


def _brokers(metadata: _Reader) -> dict[int, tuple[str, int]]:
    found = {}
    for _ in range(metadata.int32()):
        broker, host, port = metadata.int32(), metadata.string(), metadata.int32()
        metadata.string()  # rack
        found[broker] = (host or "", port)
    return found


def find_coordinator(address: tuple[str, int], group: str) -> tuple[int, str, int]:
    """Sends FindCoordinator v1. Returns the coordinator's broker id, host and port."""
    answer = _ask(address, _FIND_COORDINATOR, 1, _string(group) + b"\0")
    answer.skip(4)
    code = answer.int16()
    answer.string()
    if code:
        raise GroupRequestFailed(f"FindCoordinator for {group!r}", code)
    return answer.int32(), answer.string() or "", answer.int32()


def fetch_offsets(address: tuple[str, int], group: str) -> dict[tuple[str, int], int]:
    """Sends OffsetFetch v5 with null topics. Returns all offsets that the group has committed."""
    answer = _ask(address, _OFFSET_FETCH, 5, _string(group) + struct.pack(">i", -1))
    answer.skip(4)
    offsets = {}
    for _ in range(answer.int32()):
        topic = answer.string() or ""
        for _ in range(answer.int32()):
            partition, offset = answer.int32(), answer.int64()
            answer.skip(4)
            answer.string()
            answer.skip(2)
            if offset >= 0:
                offsets[topic, partition] = offset
    if code := answer.int16():
        raise GroupRequestFailed(f"OffsetFetch of {group!r}", code)
    return offsets


def describe_group(address: tuple[str, int], group: str) -> GroupDescription:
    """Sends DescribeGroups v4. Returns state, protocol and members with their assignments."""
    answer = _ask(address, _DESCRIBE_GROUPS, 4, struct.pack(">i", 1) + _string(group) + b"\0")
    answer.skip(8)  # throttle time, number of groups
    if code := answer.int16():
        raise GroupRequestFailed(f"DescribeGroups of {group!r}", code)
    answer.string()
    state, _, protocol = answer.string(), answer.string(), answer.string()
    members = [_member(answer) for _ in range(answer.int32())]
    return GroupDescription(state or "", protocol or "", members)


def _member(answer: _Reader) -> GroupMember:
    member_id, instance, client = answer.string(), answer.string(), answer.string()
    answer.string()  # host
    answer.bytes()  # subscription
    return GroupMember(member_id or "", instance, client or "", _assignment(answer.bytes()))


def _assignment(data: bytes) -> frozenset[tuple[str, int]]:
    if not data:
        return frozenset()
    reader = _Reader(data)
    reader.skip(2)  # version
    found = set()
    for _ in range(reader.int32()):
        topic = reader.string() or ""
        found |= {(topic, reader.int32()) for _ in range(reader.int32())}
    return frozenset(found)


class _Reader:
    """Decodes Kafka's classic types one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise EOFError("the answer is shorter than it should be")
        self._at += size
        return taken

    def skip(self, size: int) -> None:
        self._take(size)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), signed=True)

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._take(size).decode()

    def bytes(self) -> bytes:
        return self._take(max(self.int32(), 0))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _ask(address: tuple[str, int], api: int, version: int, body: bytes, *, timeout: float = 10.0) -> _Reader:
    request = struct.pack(">hhi", api, version, 1) + _string("kafka-actors-testing") + body
    with socket.create_connection(address, timeout=timeout) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            size = int.from_bytes(_exactly(stream.read(4), 4))
            answer = _Reader(_exactly(stream.read(size), size))
    answer.skip(4)  # correlation id
    return answer


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise ConnectionError("the broker closed the connection")
    return data


_REQUEST_TIMEOUT = 30.0
_UNKNOWN_TOPIC_OR_PARTITION = 3
_EARLIEST, _LATEST = -2, -1
T = TypeVar("T")


class ClusterAdmin(ABC):
    """Reads and changes topics, leaders, coordinators and offsets of the cluster at `bootstrap_servers`."""

    def __init__(self) -> None:
        self._admin: AdminClient | None = None

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers."""

    @property
    def admin(self) -> AdminClient:
        """confluent-kafka's AdminClient on this cluster, for what the methods here do not cover."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            # With its log on, it would print each refused connection of a broker that a test has killed.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return self._admin

    def live_brokers(self) -> set[int]:
        """Ids of the brokers in the cluster's metadata; empty while no broker answers. The brokers need not be reachable yet by the
        addresses that they advertise."""
        for server in self.bootstrap_servers.split(","):
            host, _, port = server.rpartition(":")
            with contextlib.suppress(OSError, EOFError):
                return list_brokers((host, int(port)))
        return set()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replica_assignment: list[list[int]] | None = None,
    ) -> str:
        """Creates a topic, waits until each partition has a leader that answers, returns the name.

        `replica_assignment` lists the broker ids of each partition, the preferred leader first, in place of
        `partitions` and `replication_factor`. Raises `confluent_kafka.KafkaException` when the broker refuses.
        """
        settings = {key: str(value) for key, value in (config or {}).items()}
        if replica_assignment is None:
            topic = _confluent().NewTopic(name, partitions, replication_factor, config=settings)
        else:
            partitions = len(replica_assignment)
            topic = _confluent().NewTopic(
                name, partitions, replica_assignment=replica_assignment, config=settings
            )
        _results(self.admin.create_topics([topic], request_timeout=_REQUEST_TIMEOUT))
        self.wait_for_leaders(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits until it has left the metadata."""
        _results(self.admin.delete_topics([name], request_timeout=_REQUEST_TIMEOUT))
        self._wait(lambda: name not in self.admin.list_topics(timeout=5).topics, f"topic {name} to be gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Grows a topic to `total` partitions and waits until each has a leader."""
        _results(
            self.admin.create_partitions(
                [_confluent().NewPartitions(name, total)], request_timeout=_REQUEST_TIMEOUT
            )
        )
        self.wait_for_leaders(name, total)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Waits until the leader of each partition answers for it. Raises `TimeoutError` after 30 seconds."""
        self._ask_leaders(topic, partitions)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition → id of its leader, -1 where it has none now. Raises `KeyError` for an unknown topic."""
        return {partition: leader for partition, (leader, _) in sorted(self._find_leaders(topic).items())}

    def coordinator_of(self, group: str, *, timeout: float = 30.0) -> int:
        """Id of the broker that coordinates `group`, which need not exist."""
        return self._ask_coordinator(group, lambda broker, _address: broker, timeout)

    def committed(self, group: str, *, timeout: float = 30.0) -> dict[tuple[str, int], int]:
        """(topic, partition) → committed offset of everything that `group` has committed."""
        return self._ask_coordinator(group, lambda _broker, address: fetch_offsets(address, group), timeout)

    def describe_group(self, group: str, *, timeout: float = 30.0) -> GroupDescription:
        """State, protocol and members of a classic group, with their partitions; state "Dead" if there is none."""
        return self._ask_coordinator(group, lambda _broker, address: describe_group(address, group), timeout)

    def end_offsets(self, *topics: str, read_committed: bool = False) -> dict[tuple[str, int], int]:
        """(topic, partition) → log end offset (the last stable offset with `read_committed`)."""
        return self._offsets(topics, _LATEST, read_committed)

    def beginning_offsets(self, *topics: str) -> dict[tuple[str, int], int]:
        """(topic, partition) → log start offset: the offset of the first record that is left."""
        return self._offsets(topics, _EARLIEST, False)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Moves the partition's log start offset up to `before`."""
        from confluent_kafka import TopicPartition

        _results(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def _forget_admin(self) -> None:
        self._admin = None

    def _offsets(
        self, topics: Iterable[str], timestamp: int, read_committed: bool
    ) -> dict[tuple[str, int], int]:
        offsets: dict[tuple[str, int], int] = {}
        for topic in topics:
            partitions = len(self.leaders(topic))
            offsets.update(self._ask_leaders(topic, partitions, timestamp, read_committed))
        return offsets

    def _find_leaders(self, topic: str) -> dict[int, tuple[int, tuple[str, int] | None]]:
        """Asks the brokers, one after the other, until one answers."""
        failure: Exception = ConnectionError("no bootstrap servers")
        for server in self.bootstrap_servers.split(","):
            host, _, port = server.rpartition(":")
            try:
                return find_leaders((host, int(port)), topic)
            except (OSError, EOFError) as error:
                failure = error
            except TopicRequestFailed as error:
                if error.code == _UNKNOWN_TOPIC_OR_PARTITION:
                    raise KeyError(f"{topic}: {error}") from error
                failure = error
        raise failure

    def _ask_leaders(
        self, topic: str, partitions: int, timestamp: int = _LATEST, read_committed: bool = False
    ) -> dict[tuple[str, int], int]:
        """Asks the leaders for offsets until each has answered: a broker may not know the topic, or that it leads, yet.

        librdkafka's ListOffsets is not used, because it goes by cached metadata, in which a partition may have no leader
        for 30 seconds.
        """
        deadline = time.monotonic() + _REQUEST_TIMEOUT
        offsets: dict[tuple[str, int], int] = {}
        while True:
            try:
                leaders: dict[tuple[str, int], list[int]] = {}
                found = self._find_leaders(topic)
                for partition in range(partitions):
                    if (topic, partition) not in offsets:
                        _, leader = found[partition]
                        if leader is None:
                            raise LookupError(f"{topic}-{partition} has no leader")
                        leaders.setdefault(leader, []).append(partition)
                for leader, led in leaders.items():
                    offsets.update(ask_offsets(leader, topic, led, timestamp, int(read_committed)))
                return offsets
            except (OSError, EOFError, LookupError, TopicRequestFailed) as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"waited {_REQUEST_TIMEOUT:.0f} s for the leaders of topic {topic} to answer; last: {error}"
                    ) from error
                time.sleep(0.02)

    def _ask_coordinator(self, group: str, request: Callable[[int, tuple[str, int]], T], timeout: float) -> T:
        """Looks up the coordinator at any broker and sends it the request, and tries again while the coordinator is moving."""
        deadline = time.monotonic() + timeout
        while True:
            for bootstrap in self.bootstrap_servers.split(","):
                host, port = bootstrap.rsplit(":", 1)
                try:
                    broker, its_host, its_port = find_coordinator((host, int(port)), group)
                    return request(broker, (its_host, its_port))
                except OSError as error:
                    failure: Exception = error
                except GroupRequestFailed as error:
                    if error.code not in COORDINATOR_MOVING:
                        raise
                    failure = error
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"no coordinator of {group!r} answered within {timeout:.0f} s"
                ) from failure
            time.sleep(0.05)

    @staticmethod
    def _wait(holds: Any, what: str, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:.0f} s for {what}")
            time.sleep(0.02)


def _confluent() -> Any:
    """confluent_kafka.admin, imported at first use, as Any: its type hints lack most names."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def _results(futures: Mapping[Any, Any]) -> list[Any]:
    return [future.result() for future in futures.values()]
