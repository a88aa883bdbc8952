"""Requests to the brokers of a test cluster, encoded here by hand in their last classic (non-flexible) versions: metadata, offsets, groups.

They don't use `kafka_actors.protocol` on purpose, so that tests of that package are checked independently. confluent-kafka's AdminClient
is not used for them, because it goes by cached metadata, in which a partition may have no leader for 30 seconds, and because it
sometimes ends the process by a segmentation fault while a group's coordinator is loading (2.16.1, ListConsumerGroupOffsets).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

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
