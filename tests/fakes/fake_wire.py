"""Raw requests to the machine of `FakeKafka`, without sockets: what a client would send goes in, responses come out."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from crc32c import crc32c

from kafka_actors.protocol import decode, decode_header, frame
from kafka_actors.protocol.schema import Request
from kafka_actors.records.batch import ATTRIBUTES_AT, CRC_AT, TRANSACTIONAL
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.testing.fake_kafka.machines.cluster_state import Release
from kafka_actors.testing.fake_kafka.machines.fake_cluster import CloseLink, FakeCluster, SendBytes
from kafka_actors.testing.fake_kafka.machines.settings import broker_settings

NOW_MS = 1_700_000_000_000


class Wire:
    """Brokers 1, 2, … under a clock that only `pass_time` moves, and connections by name, which stay open however long they are idle."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        topics: dict[str, int] | None = None,
        release: Release = (4, 1),
        config: dict[str, Any] | None = None,
        users: dict[str, str] | None = None,
        random: Random | None = None,
        wall_ms: int = NOW_MS,
        transaction_version: int | None = None,
    ) -> None:
        self.cluster = FakeCluster(
            random or Random(1),
            release=release,
            settings=broker_settings({"connections.max.idle.ms": -1, **(config or {})}),
            wall_ms=wall_ms,
            users=users,
            transaction_version=transaction_version,
        )
        self.state = self.cluster.state
        for node_id in range(1, brokers + 1):
            self.state.add_node(node_id, "fake", 9000 + node_id)
        for name, count in (topics or {}).items():
            self.state.create_topic(name, [[1 + i % brokers] for i in range(count)])
        self.now = 0.0
        self.closed: set[str] = set()
        self._links: dict[str, int] = {}
        self._asked: dict[str, list[tuple[Request[Any], int]]] = {}
        self._received: dict[str, bytearray] = {}

    def send(self, request: Request[Any], version: int, on: str = "client", node: int = 1) -> None:
        """Sends a request on the connection of that name, which is opened where it does not exist."""
        if on not in self._links:
            self._links[on] = self.cluster.connected(node, "/client", self.now)
            self._asked[on], self._received[on] = [], bytearray()
        if getattr(request, "acks", None) != 0:  # Produce with acks=0 is not answered
            self._asked[on].append((request, version))
        data = frame(request.api_key, version, len(self._asked[on]), on, request)
        self.cluster.received(self._links[on], data, self.now)
        self.poll()

    def poll(self) -> float | None:
        """Lets the machine go on; returns when it wants to be polled again."""
        names = {link: name for name, link in self._links.items()}
        ready = self.cluster.poll(self.now)
        for action in ready.actions:
            if isinstance(action, SendBytes):
                self._received[names[action.link]] += action.data
            elif isinstance(action, CloseLink):
                self.closed.add(names[action.link])
        return ready.next_wake

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, timer by timer."""
        until = self.now + seconds
        while (wake := self.poll()) is not None and wake <= until:
            self.now = max(self.now, wake)
        self.now = until
        self.poll()

    def raw(self, on: str = "client") -> bytes:
        """All bytes that came on a connection and were not taken as responses."""
        return bytes(self._received.get(on, b""))

    def take(self, on: str = "client") -> Any:
        """The next response on a connection; None where there is none yet."""
        data = self._received.get(on, bytearray())
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
            return None
        size = int.from_bytes(data[:4])
        body = bytes(data[4 : 4 + size])
        del data[: 4 + size]
        request, version = self._asked[on].pop(0) if self._asked[on] else (None, 0)
        assert request is not None
        _, rest = decode_header(request.api_key, version, "response", body)
        return decode(request.api_key, version, "response", rest)

    def ask(self, request: Request[Any], version: int, on: str = "client", node: int = 1) -> Any:
        """Sends a request, and returns its response; None where it waits."""
        self.send(request, version, on, node)
        return self.take(on)


def record_batch(
    *values: bytes | None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    keys: list[bytes | None] | None = None,
    timestamps: list[int] | None = None,
    transactional: bool = False,
) -> bytes:
    """One batch as a producer sends it. producer: id, epoch and first sequence."""
    writer = ACTIVE.writer(1000)
    for index, value in enumerate(values):
        stamp = timestamps[index] if timestamps else NOW_MS
        writer.append_one(keys[index] if keys else None, value, None, stamp, 1 << 30)
    data = bytearray(writer.seal(*producer))
    if transactional:
        data[22] |= TRANSACTIONAL
        struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return bytes(data)
