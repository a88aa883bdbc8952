"""The same random requests to `FakeKafka` and to a real broker, and their responses compared field by field.

`FakeKafka`'s machine answers first. Where it has answered, the broker's answer is waited for; where it keeps a request waiting (JoinGroup,
SyncGroup), the broker must too. Ids that each side makes by itself (members, producers, topics, fetch sessions) are bound to each
other when they are seen first, and have to stay bound. What is not compared stands in `IGNORED` and `UNORDERED`.
"""

from __future__ import annotations

import select
import socket
import time
from random import Random
from typing import Any
from uuid import UUID

import msgspec
from fakes.fake_wire import Wire

from kafka_actors.errors import TransactionalIdNotFoundError
from kafka_actors.protocol import (
    ZERO_UUID,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupResponse,
    ListOffsetsRequest,
    MetadataRequest,
    decode,
    decode_header,
    frame,
)
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic
from kafka_actors.protocol.schema import Element, Request
from kafka_actors.testing.fake_kafka.machines.record_batches import parse_all

IGNORED_OF_CREATED_TOPICS = "configs"
"""All settings of a topic: their sources differ by how a broker is set up. Those that do not are asked for by name."""
IGNORED = {
    "throttle_time_ms": "quotas",
    "error_message": "texts",
    "batch_index_error_message": "texts",
    "host": "addresses",
    "port": "addresses",
    "brokers": "addresses",
    "node_endpoints": "addresses",
    "client_host": "addresses",
    "cluster_id": "each has its own",
    "controller_id": "any broker",
    "log_append_time_ms": "times",
    "commit_timestamp": "times",
    "transaction_start_time_ms": "times",
    "replica_nodes": "placed at random",
    "isr_nodes": "placed at random",
    "leader_id": "there is one broker",
    "node_id": "there is one broker",
    "leader": "of a group: told apart by whether it is the member itself, see `Undecided`",
}
"""Fields of responses that are not compared, and why."""
UNORDERED = {
    "api_keys": ("api_key",),
    "topics": ("name", "topic"),
    "results_by_topic_v3_and_below": ("name",),
    "topic_results": ("name",),
    "results_by_partition": ("partition_index",),
    "transaction_states": ("transactional_id",),
    "active_producers": ("producer_id",),
    "responses": ("name", "topic"),
    "results": ("name", "group_id"),
    "configs": ("name",),
    "groups": ("group_id",),
    "partitions": ("partition_index", "partition"),
    "members": ("member_id",),
}
"""Lists whose order is that of a hash table in Kafka, and the fields by one of which they are sorted here."""
BOUND = {"member_id", "producer_id", "topic_id", "session_id"}
"""Fields with ids that each side makes by itself."""
TIMES = {"timestamp", "last_timestamp"}
"""Fields with times of records, which are the same, or of markers of transactions, which each side has written at its own time."""
TIMEOUT_S = 60.0


class Difference(AssertionError):
    """The two sides answered differently."""


class Undecided(Exception):
    """A choice that Kafka makes by the order of a hash table: which member leads when the leader has gone. Nothing can be compared after it."""


class Ids:
    """Pairs of ids: the fake's and the broker's."""

    def __init__(self) -> None:
        self.by_fake: dict[Any, Any] = {}
        self.by_real: dict[Any, Any] = {}

    def bind(self, fake: Any, real: Any, path: str) -> None:
        if fake in ("", -1, 0, ZERO_UUID) or real in ("", -1, 0, ZERO_UUID):
            if fake != real and not (path.endswith("producer_id") and fake == 0):
                raise Difference(f"{path}: {fake!r}, and the broker has {real!r}")
            if fake == real:
                return
        if self.by_fake.setdefault(fake, real) != real or self.by_real.setdefault(real, fake) != fake:
            raise Difference(f"{path}: {fake!r} is {self.by_fake.get(fake)!r}, and the broker has {real!r}")

    def real(self, fake: Any) -> Any:
        return self.by_fake.get(fake, fake)


def translated(value: Any, ids: Ids, name: str = "") -> Any:
    """A request of the fake's with the broker's ids in place of the fake's."""
    if isinstance(value, Element):
        fields = {f: translated(getattr(value, f), ids, f) for f in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, list):
        return [translated(item, ids, name) for item in value]
    return ids.real(value) if name in BOUND else value


class RealConnection:
    """A connection to a broker, on which one request may wait."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._data = bytearray()
        self.asked: tuple[Request[Any], int] | None = None

    def send(self, request: Request[Any], version: int, client_id: str) -> None:
        self._socket.sendall(frame(request.api_key, version, 1, client_id, request))
        self.asked = (request, version)

    def answered_early(self) -> bool:
        """Whether something has come that nobody waits for."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def take(self) -> Any:
        """Waits for the response; None where the broker closes the connection."""
        assert self.asked is not None
        request, version = self.asked
        while len(self._data) < 4 or len(self._data) < 4 + int.from_bytes(self._data[:4]):
            more = self._socket.recv(1 << 20)
            if not more:
                return None
            self._data += more
        size = int.from_bytes(self._data[:4])
        body = bytes(self._data[4 : 4 + size])
        del self._data[: 4 + size]
        self.asked = None
        _, rest = decode_header(request.api_key, version, "response", body)
        return decode(request.api_key, version, "response", rest)

    def close(self) -> None:
        self._socket.close()


class Pair:
    """A fake cluster of one broker and a real broker, asked the same."""

    def __init__(
        self,
        address: tuple[str, int],
        random: Random,
        version: str,
        transaction_version: int | None = None,
    ) -> None:
        self.ids = Ids()
        major, minor, *_ = map(int, version.split("."))
        self.release = (major, minor)
        now_ms = time.time_ns() // 1_000_000
        self.fake = Wire(
            random=random,
            config={"offsets.topic.num.partitions": 4},
            wall_ms=now_ms,
            release=self.release,
            transaction_version=transaction_version,
        )
        self._address = address
        self._real: dict[str, RealConnection] = {}
        self._began = time.monotonic()
        self._began_ms = now_ms
        self.steps: list[str] = []
        self.compared = 0

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._real.values():
            connection.close()

    def waits(self, on: str) -> bool:
        """Whether a request on that connection waits for its response."""
        return on in self._real and self._real[on].asked is not None

    def ask(
        self, request: Request[Any], version: int, on: str, real_request: Request[Any] | None = None
    ) -> Any:
        """Asks both; returns the fake's response, None while it waits. Raises `Difference`."""
        self.steps.append(f"{on}: v{version} {request!r}")
        del self.steps[:-40]
        if on not in self._real:
            self._real[on] = RealConnection(self._address)
        self.fake.now = time.monotonic() - self._began
        self.fake.send(request, version, on)
        real = real_request or translated(request, self.ids)
        self._real[on].send(real, version, on)
        return self.settle().get(on)

    def settle(self) -> dict[str, Any]:
        """Takes all responses that the fake has given, with the broker's; returns them by connection."""
        found = {}
        for on, connection in self._real.items():
            if connection.asked is not None and (fake := self.fake.take(on)) is not None:
                found[on] = fake
        # Followers first: their answers have the ids that the leader's list is sorted by.
        for on in sorted(found, key=lambda on: bool(getattr(found[on], "members", None))):
            self._compare_responses(on, self._real[on], found[on])
        for on, connection in self._real.items():
            if connection.asked is not None and connection.answered_early():
                request, _ = connection.asked
                if isinstance(request, FetchRequest):  # its time may be over there
                    continue
                raise self.difference(
                    f"{on}: the fake waits, the broker answered {connection.take()!r} to {request!r}"
                )
        return found

    def _compare_responses(self, on: str, connection: RealConnection, fake: Any) -> None:
        try:
            real = connection.take()
        except TimeoutError:
            raise self.difference(f"{on}: the broker does not answer, the fake did: {fake!r}") from None
        if real is None:
            raise self.difference(f"{on}: the broker closed the connection, the fake answered {fake!r}")
        try:
            self.compare(fake, real, type(fake).__name__)
        except Difference as difference:
            raise self.difference(f"{difference}\nfake: {fake!r}\nreal: {real!r}") from None
        self.compared += 1

    def difference(self, text: str) -> Difference:
        return Difference(text + "\nafter\n" + "\n".join(self.steps))

    # ---------------------------------------------------------------- comparing

    def compare(self, fake: Any, real: Any, path: str, name: str = "") -> None:
        """Raises `Difference` for the first field that differs."""
        if name in IGNORED or (name == IGNORED_OF_CREATED_TOPICS and path.startswith("CreateTopics")):
            return
        if isinstance(fake, Element):
            if type(fake) is not type(real):
                raise Difference(f"{path}: {fake!r}, and the broker has {real!r}")
            joined = isinstance(fake, JoinGroupResponse) and fake.error_code == real.error_code == 0
            if joined and (fake.leader == fake.member_id) != (real.leader == real.member_id):
                raise Undecided(path)
            for field in fake.__struct_fields__:
                self.compare(getattr(fake, field), getattr(real, field), f"{path}.{field}", field)
        elif name == "records":
            self._compare_records(bytes(fake or b""), bytes(real or b""), path)
        elif isinstance(fake, list) and isinstance(real, list):
            if len(fake) != len(real):
                raise Difference(f"{path}: {len(fake)} of them, and the broker has {len(real)}")
            fake = self._sorted(fake, name, self.ids.by_fake, self.ids.real)
            real = self._sorted(real, name, self.ids.by_real, lambda value: value)
            for index, pair in enumerate(zip(fake, real, strict=True)):
                self.compare(*pair, f"{path}[{index}]", name)
        elif name in BOUND:
            self.ids.bind(fake, real, path)
        elif name in TIMES and min(fake, real) >= self._began_ms:
            pass
        elif fake != real:
            raise Difference(f"{path}: {fake!r}, and the broker has {real!r}")

    def _sorted(self, items: list[Any], name: str, known: dict[Any, Any], of: Any) -> list[Any]:
        """Items by their name or id, as the broker has it; those whose ids are not bound yet come last, by their clients."""
        if items and isinstance(items[0], int):
            return sorted(items)
        key = next((k for k in UNORDERED.get(name, ()) if items and hasattr(items[0], k)), None)
        if key is None:
            return items
        ids = "topic_id" if hasattr(items[0], "topic_id") else key

        def place(item: Any) -> tuple[str, str, bool, str]:
            value = getattr(item, ids)
            client = getattr(item, "client_id", "")
            plain = "" if ids in BOUND and value != ZERO_UUID else str(getattr(item, key))
            return plain, client, ids in BOUND and value not in known, str(of(value))

        return sorted(items, key=place)

    def _compare_records(self, fake: bytes, real: bytes, path: str) -> None:
        if len(fake) != len(real):
            raise Difference(f"{path}: {len(fake)} bytes, and the broker has {len(real)}")
        for mine, theirs in zip(parse_all(fake), parse_all(real), strict=True):
            for field in msgspec.structs.fields(mine):
                if field.name == "producer_id":
                    self.ids.bind(mine.producer_id, theirs.producer_id, f"{path}.producer_id")
                elif mine.is_control and field.name.endswith("timestamp"):
                    continue
                elif field.name == "data":
                    if mine.data[61:] != theirs.data[61:]:
                        raise Difference(f"{path}: other records at {mine.base_offset}")
                elif getattr(mine, field.name) != getattr(theirs, field.name):
                    raise Difference(
                        f"{path}.{field.name}: {getattr(mine, field.name)}, and the broker has {getattr(theirs, field.name)}"
                    )

    # ---------------------------------------------------------------- what takes a real broker its time

    def until_group_agrees(self, group: str) -> None:
        """Waits until the broker has taken in a JoinGroup or SyncGroup that it does not answer yet."""
        mine = self.fake.cluster.groups.groups.get(group)
        wanted = (mine.state, len(mine.members)) if mine is not None else ("Dead", 0)
        deadline = time.monotonic() + TIMEOUT_S
        alike = 0
        while (
            alike < 3
        ):  # what changes neither state nor members is seen by nothing: it was sent before these
            (found,) = self.ask_real(DescribeGroupsRequest([group]), 2).groups
            alike = alike + 1 if (found.group_state, len(found.members)) == wanted else 0
            if time.monotonic() > deadline:
                raise self.difference(f"group {group} is {wanted}, and the broker has {found!r}")

    def until_transaction_agrees(self, transactional_id: str) -> None:
        """Waits until the broker has written the markers of a transaction."""
        if not transactional_id:
            return
        mine = self.fake.cluster.transactions.transactions.get(transactional_id)
        deadline = time.monotonic() + TIMEOUT_S
        while mine is not None:
            (found,) = self.ask_real(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
            if found.transaction_state == mine.state:
                time.sleep(0.002)  # so that no two markers have the same time
                return
            if time.monotonic() > deadline:
                raise self.difference(f"{transactional_id} is {mine.state}, and the broker has {found!r}")

    def ask_real(self, request: Request[Any], version: int) -> Any:
        """Asks only the broker."""
        if "wait" not in self._real:
            self._real["wait"] = RealConnection(self._address)
        self._real["wait"].send(request, version, "wait")
        return self._real["wait"].take()

    def until_ready(self, group: str) -> None:
        """Waits until a young broker coordinates groups, and has producer ids to give."""
        deadline = time.monotonic() + TIMEOUT_S
        waiting = [
            (FindCoordinatorRequest(coordinator_keys=[group]), 4, lambda a: a.coordinators[0].error_code),
            (DescribeGroupsRequest([group]), 2, lambda a: a.groups[0].error_code),
            (InitProducerIdRequest(transactional_id=None), 2, lambda a: a.error_code),
            (
                FindCoordinatorRequest(key_type=1, coordinator_keys=[group]),
                4,
                lambda a: a.coordinators[0].error_code,
            ),
            (
                DescribeTransactionsRequest([group]),
                0,
                lambda a: a.transaction_states[0].error_code - TransactionalIdNotFoundError.code,
            ),
        ]
        for request, version, code in waiting:
            while code(answer := self.ask_real(request, version)) != 0:
                if time.monotonic() > deadline:
                    raise self.difference(f"{answer!r} for {TIMEOUT_S} s")
                time.sleep(0.05)

    def until_topic_agrees(self, name: str) -> None:
        """Waits until the broker's metadata has a topic as the fake has it, and its logs are open."""
        topic = self.fake.state.topics.get(name)
        wanted = len(topic.partitions) if topic is not None else 0
        deadline = time.monotonic() + TIMEOUT_S
        partitions = [ListOffsetsPartition(i, -1, -1) for i in range(max(wanted, 1))]
        while True:
            metadata = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            )
            (found,) = self.ask_real(metadata, 9).topics
            logs = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name, partitions)])
            codes = {p.error_code for p in self.ask_real(logs, 5).topics[0].partitions}
            if len(found.partitions) == wanted and codes == ({0} if wanted else {3}):
                return
            if time.monotonic() > deadline:
                raise self.difference(f"topic {name} stays other: {found!r}, {codes}")
            time.sleep(0.02)


def topic_id_of(pair: Pair, name: str) -> UUID:
    """The fake's id of a topic."""
    return pair.fake.state.topics[name].topic_id
