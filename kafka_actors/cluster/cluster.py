"""`Cluster`: one connection to each broker that metadata names, opened and closed as metadata changes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from kafka_actors.base.addresses import format_address, parse_address, parse_bootstrap_servers
from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.errors import KafkaActorsError, NoBrokersError, error_for_code
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic

from .metadata import error_of
from .snapshot import ClusterSnapshot, TopicMetadata

log = logging.getLogger(__name__)

HEAL_ATTEMPTS = 10
HEAL_BACKOFF_S = 0.1
HEAL_BACKOFF_MAX_S = 1.0


class ClusterConnection(Protocol):
    """A connection to a broker: a `Connection` of `net`, or the handle of a connection actor."""

    @property
    def closing(self) -> bool: ...
    def close(self) -> object: ...
    def abort(self) -> object: ...
    async def send(self, request: MetadataRequest) -> MetadataResponse: ...


C = TypeVar("C", bound=ClusterConnection)
C_co = TypeVar("C_co", bound=ClusterConnection, covariant=True)


class Located(Protocol):
    """A broker with its host and port."""

    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Connect(Protocol[C_co]):
    """Opens a connection; `node_id` is None for a bootstrap host. Raises errors of `KafkaActorsError`."""

    def __call__(self, host: str, port: int, node_id: int | None) -> Awaitable[C_co]: ...


Metadata = MetadataResponse | ClusterSnapshot
Topic = MetadataResponseTopic | TopicMetadata


class Cluster(Generic[C]):
    """Maps broker ids to connections, with the topics and leaders that these connections serve.

    `conns` holds a connection for each broker, `topics` the partition ids of each topic, `leaders` the broker
    id of each (topic, partition) whose leader has a connection. `connect` opens a connection; `fetch_metadata`
    returns metadata in place of a request over the connections, where another part of the process has it. `attempts` bounds
    the rounds of one `heal`; `sleep` waits for that many seconds, `rand` gives 0..1 for jitter.
    """

    def __init__(
        self,
        bootstrap_hosts: Iterable[str] | str,
        connect: Connect[C],
        *,
        fetch_metadata: Callable[[], Awaitable[Metadata]] | None = None,
        attempts: int = HEAL_ATTEMPTS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        hosts = bootstrap_hosts if isinstance(bootstrap_hosts, str) else list(bootstrap_hosts)
        self.bootstrap_hosts = [parse_address(text) for text in parse_bootstrap_servers(hosts)]
        self.conns: dict[int, C] = {}
        self.topics: dict[str, list[int]] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connect = connect
        self._fetch_metadata = fetch_metadata
        self._attempts = attempts
        self._sleep = sleep
        self._rand = rand
        self._healing = asyncio.Lock()
        self._stops = 0

    def __getitem__(self, broker_id: int) -> C:
        return self.conns[broker_id]

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self.conns

    def __iter__(self) -> Iterator[int]:
        return iter(self.conns)

    def get_leader(self, topic: str, partition_id: int) -> int:
        """The broker id of a partition's leader. Raises `KeyError` if it has none that is connected."""
        return self.leaders[topic, partition_id]

    async def start(self) -> None:
        """Asks the bootstrap hosts for metadata, one after the other, then heals with the first answer.

        Raises `NoBrokersError`, which says of each host why it failed.
        """
        await self.heal(await self._bootstrap())

    async def heal(self, response: Metadata | None = None) -> None:
        """Opens and closes connections until they are those of `response`, or of metadata that is asked for.

        Closing connections are dropped first. Then brokers and topics are processed, with metadata asked for
        anew after a pause, until nothing is missing or the bound on attempts is reached; the rest is
        left to the next call, as are topics with errors that no waiting mends. When no known broker answers, the
        bootstrap hosts are asked again (KIP-899). `stop` ends it. Raises `NoBrokersError`.
        """
        async with self._healing:
            stops = self._stops
            self._cull()
            metadata = response if response is not None else await self._any_metadata()
            for attempt in range(1, self._attempts + 1):
                failing = await self.process_brokers(_brokers(metadata))
                missing = self.process_topics(_topics(metadata))
                if self._stops != stops or (not failing and missing <= _beyond_healing(_topics(metadata))):
                    return
                if attempt < self._attempts:
                    await self._sleep(
                        exponential_backoff(attempt, HEAL_BACKOFF_S, HEAL_BACKOFF_MAX_S, self._rand)
                    )
                    self._cull()
                    metadata = await self._any_metadata()
            log.warning(
                "not healed: no connection to brokers %s; incomplete topics %s",
                sorted(failing),
                sorted(missing),
            )

    def _cull(self) -> None:
        for broker_id in [broker_id for broker_id, conn in self.conns.items() if conn.closing]:
            self._abort(broker_id)

    def _abort(self, broker_id: int) -> None:
        self._addresses.pop(broker_id, None)
        self.conns.pop(broker_id).abort()

    async def _any_metadata(self) -> Metadata:
        try:
            if self._fetch_metadata is not None:
                return await self._fetch_metadata()
            return await self.get_metadata()
        except NoBrokersError as error:
            log.info("no known broker answered (%s): bootstrapping again", error)
            return await self._bootstrap()

    async def get_metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Asks each connection in turn until one names brokers, about `topics`, None for all.

        Raises `NoBrokersError`, which says of each connection why it failed.
        """
        failures: list[str] = []
        for broker_id, conn in list(self.conns.items()):
            try:
                response = await conn.send(metadata_request(topics))
                if (refused := error_of(response)) is None:
                    return response
                failures.append(f"broker {broker_id}: {refused}")
            except KafkaActorsError as error:
                failures.append(f"broker {broker_id}: {error}")
        raise NoBrokersError("no connection answered: " + ("; ".join(failures) or "there is none"))

    async def _bootstrap(self) -> MetadataResponse:
        failures: list[str] = []
        for host, port in self.bootstrap_hosts:
            try:
                conn = await self._connect(host, port, None)
                try:
                    response = await conn.send(metadata_request(None))
                finally:
                    conn.close()
                if response.brokers:
                    return response
                failures.append(f"{format_address(host, port)}: knows no broker")
            except KafkaActorsError as error:
                failures.append(str(error))
        raise NoBrokersError("no bootstrap host answered: " + "; ".join(failures))

    async def process_brokers(self, brokers: Iterable[Located]) -> set[int]:
        """Connects to these brokers and to no others. Returns the ids of those that can't be connected to.

        Connections to brokers that are not listed, or have another address now, are aborted. New ones are opened at the
        same time, so that one that doesn't answer holds up no other.
        """
        listed = {broker.node_id: (broker.host, broker.port) for broker in brokers}
        for broker_id in list(self.conns):
            if listed.get(broker_id) != self._addresses.get(broker_id):
                self._abort(broker_id)
        opened = [broker_id for broker_id in listed if broker_id not in self.conns]
        results = await asyncio.gather(*(self._open(broker_id, *listed[broker_id]) for broker_id in opened))
        return {broker_id for broker_id, works in zip(opened, results, strict=True) if not works}

    async def _open(self, broker_id: int, host: str, port: int) -> bool:
        stops = self._stops
        try:
            opened = await self._connect(host, port, broker_id)
        except KafkaActorsError as error:
            log.info("no connection to broker %s: %s", broker_id, error)
            return False
        if self._stops != stops:
            opened.close()
            return False
        self.conns[broker_id] = opened
        self._addresses[broker_id] = host, port
        return True

    def process_topics(self, topics: Iterable[Topic]) -> set[str]:
        """Replaces `topics` and `leaders` by what these topics say. Returns the names of those with errors, or with a leader that
        isn't connected.
        """
        known: dict[str, list[int]] = {}
        leaders: dict[tuple[str, int], int] = {}
        missing: set[str] = set()
        for topic in topics:
            name = topic.name or ""
            parts = _partitions(topic)
            if topic.error_code or not parts:
                missing.add(name)
                continue
            known[name] = [partition for partition, _ in parts]
            for partition, leader in parts:
                if leader in self.conns:
                    leaders[name, partition] = leader
                else:
                    missing.add(name)
        self.topics, self.leaders = known, leaders
        return missing

    def stop(self) -> None:
        """Closes each connection, also those that are being opened."""
        self._stops += 1
        for conn in self.conns.values():
            conn.close()
        self.conns.clear()
        self._addresses.clear()


def metadata_request(topics: Iterable[str] | None) -> MetadataRequest:
    """A Metadata request about these topics, None for all; it creates none of them."""
    named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def _brokers(metadata: Metadata) -> Iterable[Located]:
    return metadata.brokers.values() if isinstance(metadata, ClusterSnapshot) else metadata.brokers


def _topics(metadata: Metadata) -> Iterable[Topic]:
    return metadata.topics.values() if isinstance(metadata, ClusterSnapshot) else metadata.topics


def _beyond_healing(topics: Iterable[Topic]) -> set[str]:
    """The topics whose errors last: not authorized, not a legal name."""
    errors = {topic.name or "": error_for_code(topic.error_code) for topic in topics}
    return {name for name, error in errors.items() if error is not None and not error.retriable}


def _partitions(topic: Topic) -> list[tuple[int, int]]:
    """(partition, leader) of each."""
    if isinstance(topic, TopicMetadata):
        return [(p.partition, p.leader) for p in topic.partitions.values()]
    return [(p.partition_index, p.leader_id) for p in topic.partitions]
