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

_METADATA, _OFFSET_FETCH, _FIND_COORDINATOR, _DESCRIBE_GROUPS = 3, 9, 10, 15
COORDINATOR_MOVING = {14, 15, 16}
"""Error codes to be retried, perhaps at another broker: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR."""


class GroupRequestFailed(RuntimeError):
    """Raised when a broker answers a group request with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} was answered with error code {code}")
        self.code = code


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
    answer = _ask(address, _METADATA, 1, struct.pack(">i", 0), timeout=2.0)
    found = set()
    for _ in range(answer.int32()):
        found.add(answer.int32())
        answer.string()  # host
        answer.skip(4)  # port
        answer.string()  # rack
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
_LEADER_MOVING = {3, 5, 6, 9, 72, 74, 75, 76, 100, -156}
"""Error codes of a leader that is new, moving or not yet known everywhere, to be retried. -156 is librdkafka's own: "No
leaders found"."""
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
        self._wait(lambda: self._has_leaders(name, partitions), f"topic {name} to have {partitions} leaders")
        self._wait(lambda: self._logs_opened(name), f"the leaders of topic {name} to answer")
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
        self._wait(lambda: self._has_leaders(name, total), f"topic {name} to have {total} leaders")

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition → id of its leader, -1 where it has none now. Raises `KeyError` for an unknown topic."""
        found = self.admin.list_topics(topic, timeout=10).topics[topic]
        if found.error is not None:
            raise KeyError(f"{topic}: {found.error}")
        return {partition: data.leader for partition, data in sorted(found.partitions.items())}

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
        return self._offsets(topics, _confluent().OffsetSpec.latest(), read_committed)

    def beginning_offsets(self, *topics: str) -> dict[tuple[str, int], int]:
        """(topic, partition) → log start offset: the offset of the first record that is left."""
        return self._offsets(topics, _confluent().OffsetSpec.earliest(), False)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Moves the partition's log start offset up to `before`."""
        from confluent_kafka import TopicPartition

        _results(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def _forget_admin(self) -> None:
        self._admin = None

    def _offsets(self, topics: Iterable[str], spec: Any, read_committed: bool) -> dict[tuple[str, int], int]:
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

        specs = {
            TopicPartition(topic, partition): spec for topic in topics for partition in self.leaders(topic)
        }
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        deadline = time.monotonic() + _REQUEST_TIMEOUT
        while True:  # a leader in the metadata may not have opened its log yet
            try:
                futures = self.admin.list_offsets(
                    specs, isolation_level=level, request_timeout=_REQUEST_TIMEOUT
                )
                return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}
            except KafkaException as error:
                if error.args[0].code() not in _LEADER_MOVING or time.monotonic() > deadline:
                    raise
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

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        found = self.admin.list_topics(topic, timeout=5).topics[topic]
        leaders = [data.leader for data in found.partitions.values()]
        return len(leaders) == partitions and min(leaders) >= 0

    def _logs_opened(self, name: str) -> bool:
        """Whether all leaders answer for the topic; a broker may not know the topic, or its leaders, yet."""
        try:
            self.end_offsets(name)
        except KeyError:
            return False
        except _confluent_kafka().KafkaException as error:
            if error.args[0].code() != _confluent_kafka().KafkaError._NOENT:
                raise
            return False
        return True

    @staticmethod
    def _wait(holds: Any, what: str, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:.0f} s for {what}")
            time.sleep(0.02)


def _confluent_kafka() -> Any:
    import confluent_kafka

    return confluent_kafka


def _confluent() -> Any:
    """confluent_kafka.admin, imported at first use, as Any: its type hints lack most names."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def _results(futures: Mapping[Any, Any]) -> list[Any]:
    return [future.result() for future in futures.values()]
