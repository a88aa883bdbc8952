"""What any client could reach: raw Fetch requests for all partitions at once, the next in flight, the bytes dropped.

The requests are found out in a first pass that is not on the clock. In the second they are there already as bytes, two
are in flight at any time, and all that is received goes into one buffer that nobody looks at.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import replace
from typing import Any

from benchmarks.reading import Clock, Run, Task
from kafka_actors.protocol import ApiKey, FetchRequest, FetchResponse, decode_header, decode_message, frame
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.records import next_offset

VERSION = 12  # the last one with topic names: no need to know ids
IN_FLIGHT = 2
PARTITION_MAX_BYTES, MAX_BYTES = 1 << 20, 50 << 20
"""Kafka's defaults."""


class Wire:
    """A blocking socket, and the one buffer that all is received into."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(MAX_BYTES + (1 << 20)))
        self._head = memoryview(bytearray(4))

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> memoryview:
        """The next response, without its length; valid until the next call."""
        self._fill(self._head)
        (size,) = struct.unpack(">i", self._head)
        self._fill(self._buffer[:size])
        return self._buffer[:size]

    def _fill(self, view: memoryview) -> None:
        got = 0
        while got < len(view):
            received = self._socket.recv_into(view[got:], flags=socket.MSG_WAITALL)
            if not received:
                raise SystemExit("the broker closed the connection")
            got += received

    def close(self) -> None:
        self._socket.close()


def floor(told: dict[str, Any]) -> Run:
    """One run. `partition_max_bytes` may be given as an option."""
    task = Task.of(told)
    requests, sizes = found_out(task, task.options.get("partition_max_bytes", PARTITION_MAX_BYTES))
    task = replace(task, options={})
    clock = Clock(task)
    while True:
        clock.making()
        wire = Wire(task.bootstrap)
        clock.start()
        for request in requests[:IN_FLIGHT]:
            wire.send(request)
        received = 0
        for number in range(len(requests)):
            received += len(wire.receive())
            clock.first()
            if number + IN_FLIGHT < len(requests):
                wire.send(requests[number + IN_FLIGHT])
        more = clock.passed(task.total)
        wire.close()
        if received != sum(sizes):
            raise SystemExit(f"the floor received {received} bytes, the first pass {sum(sizes)}")
        if not more:
            return clock.run()


def found_out(task: Task, partition_max_bytes: int) -> tuple[list[bytes], list[int]]:
    """The requests of a pass from the start of all partitions to their ends, and the sizes of their responses."""
    wire = Wire(task.bootstrap)
    offsets = dict.fromkeys(task.expected, 0)
    requests: list[bytes] = []
    sizes: list[int] = []
    heard = time.monotonic()
    while wanted := [p for p, offset in offsets.items() if offset < task.expected[p][0]]:
        # Whose turn it was last comes last: a broker fills a response in the order of the request.
        wanted = wanted[len(requests) % len(wanted) :] + wanted[: len(requests) % len(wanted)]
        partitions = [
            FetchPartition(partition=p, fetch_offset=offsets[p], partition_max_bytes=partition_max_bytes)
            for p in wanted
        ]
        topics = [FetchTopic(topic=task.topic, partitions=partitions)]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=MAX_BYTES, topics=topics)
        requests.append(frame(ApiKey.FETCH, VERSION, len(requests), "floor", request))
        wire.send(requests[-1])
        answer = wire.receive()
        sizes.append(len(answer))
        response = decode_message(
            FetchResponse, VERSION, decode_header(ApiKey.FETCH, VERSION, "response", answer)[1]
        )
        for topic in response.responses:
            for partition in topic.partitions:
                behind = next_offset(partition.records) if partition.records else None
                if behind is not None:
                    offsets[partition.partition_index] = behind
                    heard = time.monotonic()
        if time.monotonic() - heard > 30:
            raise SystemExit(f"the floor got no further than {offsets}")
    wire.close()
    return requests, sizes
