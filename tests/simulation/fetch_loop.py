"""`FetchLoop` in plain Python, over the sockets of a simulation, which have no descriptor of the system's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from kafka_actors.errors import KafkaActorsError
from kafka_actors.fetch.machines.fetch_session import FetchSession
from kafka_actors.fetch.messages import Answer, FetchReply, PartitionFetch, Pull
from kafka_actors.fetch.steady_fetch import SMALL_BYTES, End
from kafka_actors.protocol import (
    ApiKey,
    FetchRequest,
    FetchResponse,
    decode_header,
    decode_message,
    frame,
)
from kafka_actors.records import next_offset

_VERSION_AT = slice(6, 8)


class SimulatedFetchLoop:
    """Goes on as the compiled loop does: `tests/unit/fetch/test_fetch_loop.py` holds that one to a `FetchSession`, which this one has."""

    def __init__(
        self, partitions: list[PartitionFetch], request: bytes, tail: int, broker: int, sequence: int
    ) -> None:
        self.wake: Callable[[], object] = object
        self.exchanges = self.requests = 0
        self.waited_s = 0.0
        self._version = int.from_bytes(request[_VERSION_AT], "big")
        header, body = decode_header(ApiKey.FETCH, self._version, "request", memoryview(request)[4:])
        self._client_id = header.client_id
        self._correlation_id = header.correlation_id
        self._template = decode_message(FetchRequest, self._version, body)
        self._partitions = partitions
        self._sequence = sequence
        self._session = FetchSession(broker=broker)
        self._session.apply(Pull(0, partitions, max_bytes=1 << 30))
        self._places = {want.key: place for place, want in enumerate(partitions)}
        self._moved: dict[int, int] = {}
        self._changed: dict[int, None] = {}
        self._answers: list[Answer] = []
        self._interrupted = False

    def interrupt(self) -> None:
        self._interrupted = True

    def run(
        self, sock: Any, request: bytes, credit: int, least_credit: int, most_s: float, timeout_s: float
    ) -> tuple[int, int, bytes]:
        if self._interrupted:
            return End.TERMS, 0, b""
        while True:
            sock.sendall(request)
            self.requests += 1
            if self.exchanges:
                self.wake()
            size = int.from_bytes(_received(sock, 4), "big", signed=True)
            if not 4 <= size <= SMALL_BYTES:
                return End.LARGE, size, b""
            data = _received(sock, size)
            if not self._takes(data):
                return End.OTHER, size, data
            credit -= size
            if self._interrupted or credit < least_credit:
                self.wake()
                return End.TERMS, size, b""
            request = self._next_request(credit)

    def _takes(self, data: bytes) -> bool:
        """Digests a plain response; returns False for any other."""
        try:
            header, body = decode_header(ApiKey.FETCH, self._version, "response", memoryview(data))
            response = decode_message(FetchResponse, self._version, body)
        except KafkaActorsError:
            return False
        ids = {want.topic_id: want.topic for want in self._partitions}
        found = [(ids.get(t.topic_id.bytes, ""), p) for t in response.responses for p in t.partitions]
        plain = (
            header.correlation_id == self._correlation_id
            and not response.error_code
            and not response.throttle_time_ms
            and response.session_id == self._template.session_id
            and all((topic, p.partition_index) in self._places for topic, p in found)
            and not any(
                p.error_code or p.aborted_transactions or p.preferred_read_replica >= 0 for _, p in found
            )
            and all(
                not p.records or self._leads_on((topic, p.partition_index), p.records) for topic, p in found
            )
        )
        if plain:
            self._session._with_ids = True
            self._session._names = ids
            reply, records = self._session.digest(response, next_offset=next_offset, size=len(data))
            self._answers.append((replace(reply, sequence=self._sequence, more=True), records))
            self._advance(reply)
            self.exchanges += 1
            self._correlation_id += 1
        return plain

    def _leads_on(self, key: tuple[str, int], records: Any) -> bool:
        behind = next_offset(records)
        return behind is not None and behind > self._session.wanted[key]

    def _advance(self, reply: FetchReply) -> None:
        for fetched in reply.partitions:
            if fetched.size:
                place = self._places[fetched.topic, fetched.partition]
                self._moved.pop(place, None)
                self._moved[place] = fetched.next_offset
                self._changed[place] = None

    def _next_request(self, credit: int) -> bytes:
        session = FetchSession()
        session._with_ids, session._epoch = True, 1
        wants = [replace(self._partitions[place], fetch_offset=self._moved[place]) for place in self._changed]
        session.apply(Pull(0, wants))
        named, _ = session.request(self._version)
        self._changed.clear()
        request = replace(
            self._template,
            topics=named.topics,
            max_bytes=credit,
            session_epoch=self._template.session_epoch + self.exchanges,
        )
        return frame(ApiKey.FETCH, self._version, self._correlation_id, self._client_id, request)

    def drain(self) -> Sequence[Answer]:
        found, self._answers = self._answers, []
        return found

    def advanced(self) -> list[tuple[int, int]]:
        return list(self._moved.items())


def _received(sock: Any, size: int) -> bytes:
    data = bytearray(size)
    got = 0
    while got < size:
        received = sock.recv_into(memoryview(data)[got:])
        if not received:
            raise EOFError
        got += received
    return bytes(data)
