"""`ClusterMetadata`: the brokers, topics and leaders of a cluster as a client knows them, without any IO."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from typing import Any

from kafka_actors.base.addresses import parse_address, parse_bootstrap_servers
from kafka_actors.errors import ConfigError, KafkaActorsError, NoBrokersError, error_for_code
from kafka_actors.protocol import FindCoordinatorResponse, MetadataResponse
from kafka_actors.types import TopicPartition

from .future import Future, call_each
from .machines.merge import Memory, merge
from .machines.refresh import RefreshTimer
from .snapshot import (
    BrokerMetadata,
    ClusterSnapshot,
    PartitionMetadata,
    by_leader,
    with_leader,
    with_partitions,
)

log = logging.getLogger(__name__)

Listener = Callable[["ClusterMetadata"], object]

_NUMBERS = ("retry_backoff_ms", "retry_backoff_max_ms", "metadata_max_age_ms")


class ClusterMetadata:
    """The brokers, topics, partitions, leaders and group coordinators of a cluster, by the responses taken in so far.

    It does no IO: `update_metadata` takes a response, and `ttl` tells when the next one is due. The pause after a failure is
    `retry_backoff_ms`; it grows with each failure up to `retry_backoff_max_ms`. `clock` counts seconds,
    monotonic; `rand` gives 0..1 for jitter.

    A response that is older than what is known changes nothing (leader epochs, KIP-320); a topic whose id
    changed is a new topic (KIP-516). Raises `ConfigError` for an option that it doesn't know or can't use.
    """

    def __init__(
        self,
        *,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1_000,
        metadata_max_age_ms: float = 300_000,
        bootstrap_servers: str | Sequence[str] = ("localhost:9092",),
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        **unknown: Any,
    ) -> None:
        self.config: dict[str, Any] = {
            "retry_backoff_ms": retry_backoff_ms,
            "retry_backoff_max_ms": retry_backoff_max_ms,
            "metadata_max_age_ms": metadata_max_age_ms,
            "bootstrap_servers": bootstrap_servers,
        }
        for name in unknown:
            raise ConfigError(name, f"is not an option of ClusterMetadata: {', '.join(self.config)}")
        for name in _NUMBERS:
            value = self.config[name]
            if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
                raise ConfigError(name, f"is {value!r}: accepts milliseconds, 0 or more")
        self._clock = clock
        self._rand = rand
        self._timer = RefreshTimer(
            retry_backoff=retry_backoff_ms / 1000,
            retry_backoff_max=retry_backoff_max_ms / 1000,
            max_age=metadata_max_age_ms / 1000,
            rand=rand,
        )
        self._memory = Memory()
        self._newer: set[str] | None = None
        """Topics that were learned since the update that is under way was sent: its answer may lack them. None while there is none."""
        self._snapshot = ClusterSnapshot()
        self._listeners: list[Listener] = []
        self._request_listeners: list[Callable[[], object]] = []
        self._waiting: list[tuple[int, Future[ClusterMetadata]]] = []
        self._groups: dict[str, int] = {}
        self._coordinators: dict[int, BrokerMetadata] = {}
        self._leads: tuple[ClusterSnapshot, dict[int, set[TopicPartition]]] | None = None
        self._bootstrap = _bootstrap_brokers(bootstrap_servers)

    def __repr__(self) -> str:
        s = self._snapshot
        return f"<ClusterMetadata version={s.version} brokers={len(s.brokers)} topics={len(s.topics)}>"

    # ------------------------------------------------------------ reading

    def snapshot(self) -> ClusterSnapshot:
        """Returns the brokers and topics as one immutable value; the same object as long as nothing changed."""
        return self._snapshot

    def brokers(self) -> set[BrokerMetadata]:
        """All brokers; the bootstrap servers (with ids -1, -2, …) as long as no broker is known."""
        return set((self._snapshot.brokers or self._bootstrap).values())

    def bootstrap_brokers(self) -> list[BrokerMetadata]:
        """The bootstrap servers under their ids -1, -2, … in the order in which they were given."""
        return list(self._bootstrap.values())

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """The address of a broker, a group's coordinator or a bootstrap server (id below 0); None for an unknown id."""
        for known in (self._snapshot.brokers, self._coordinators, self._bootstrap):
            if broker_id in known:
                return known[broker_id]
        return None

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of known topics, without Kafka's own unless asked for."""
        return {
            name
            for name, topic in self._snapshot.topics.items()
            if topic.partitions and not (exclude_internal_topics and topic.is_internal)
        }

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partitions of a topic, available or not; None where the topic is unknown."""
        return self._snapshot.partitions_for_topic(topic)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic that have a leader; None where the topic is unknown."""
        known = self._snapshot.topics.get(topic)
        if known is None or self._snapshot.partitions_for_topic(topic) is None:
            return None
        return {p.partition for p in known.partitions.values() if p.leader >= 0}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """The node id of the leader, -1 while there is none, None where the partition is unknown."""
        return self._snapshot.leader(partition)

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """The partitions that a broker leads; None where it leads none or isn't known."""
        if self._leads is None or self._leads[0] is not self._snapshot:
            self._leads = self._snapshot, by_leader(self._snapshot)
        led = self._leads[1].get(broker_id)
        return None if led is None else set(led)

    def coordinator_for_group(self, group: str) -> int | None:
        """The node id of a group's coordinator (-1 after an error), None where the group isn't known."""
        return self._groups.get(group)

    # ------------------------------------------------------------ when to refresh

    def ttl(self) -> float:
        """Milliseconds until metadata should be refreshed; 0 when that is due."""
        return self._timer.ttl(self._clock()) * 1000

    def refresh_backoff(self) -> float:
        """Milliseconds to wait before trying again after a failure."""
        return self._timer.backoff() * 1000

    def request_update(self) -> Future[ClusterMetadata]:
        """Demands metadata newer than the present. The future resolves to this object after the update.

        It fails with the error of the next attempt, if that fails. The update itself is the owner's to carry out:
        this only changes what `ttl` returns.
        """
        demand = self._timer.demand()
        future: Future[ClusterMetadata] = Future()
        self._waiting.append((demand, future))
        call_each(self._request_listeners)
        return future

    def add_request_listener(self, listener: Callable[[], object]) -> None:
        """Calls `listener()` whenever an update is requested, so that the owner carries it out."""
        self._request_listeners.append(listener)

    def update_started(self) -> None:
        """Notes that a Metadata request is being sent: its answer will meet the updates requested until now, no later ones."""
        self._timer.started()
        self._newer = set()

    # ------------------------------------------------------------ what happened

    def update_metadata(
        self, metadata: MetadataResponse, *, version: int | None = None, partial: bool = False
    ) -> None:
        """Takes in a Metadata response.

        `version` is the one it had on the wire (None: current), `partial` says that topics which it doesn't list
        stay as they are known, and that it is no answer to `request_update`. A response with an error, or
        without any broker, is a failed update.
        """
        error = error_of(metadata)
        if error is not None:
            if not partial:
                self.failed_update(error)
            return
        keep: Collection[str] = self._snapshot.topics if partial else self._newer or ()
        self._snapshot = merge(self._snapshot, metadata, self._memory, version=version, keep=keep)
        if partial and self._newer is not None:
            self._newer.update(topic.name for topic in metadata.topics if topic.name)
        if not partial:
            self._newer = None
            self._settle(self._timer.succeeded(self._clock(), incomplete=_incomplete(metadata)), None)
        self._notify()

    def update_leader(
        self, tp: TopicPartition, leader_id: int, leader_epoch: int, broker: BrokerMetadata | None = None
    ) -> bool:
        """Takes in the leader that a Fetch or Produce error named (KIP-951). Returns whether that changed anything."""
        known = self._snapshot.partition(tp)
        if known is None or leader_id < 0 or leader_epoch <= known.leader_epoch:
            return False
        brokers = self._snapshot.brokers
        if broker is not None and brokers.get(leader_id) != broker:
            brokers = {**brokers, leader_id: broker}
        if leader_id not in brokers:
            return False
        moved = with_leader(known, leader_id, leader_epoch)
        self._snapshot = with_partitions(self._snapshot, [(tp.topic, moved)], brokers)
        self._notify()
        return True

    def forget_former_ids(self) -> None:
        """Has the next response believed, whichever ids topics had before: for whoever knows which id a topic has, or asks several brokers
        until they agree."""
        self._memory.former_ids.clear()

    def failed_update(self, exception: BaseException) -> None:
        """Takes in the failure of a Metadata request: the requested updates fail with it, and it is tried again."""
        self._settle(self._timer.failed(self._clock()), exception)

    def fail_requests(self, exception: BaseException) -> None:
        """Fails all updates requested so far, because none will be carried out."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.failure(exception)

    def add_group_coordinator(self, group: str, response: FindCoordinatorResponse) -> int | None:
        """Takes in a FindCoordinator response of any version. Returns the coordinator's node id, None on error."""
        found = next((c for c in response.coordinators if c.key == group), None)
        answer = response if found is None else found
        if found is None and not response.error_code and (response.coordinators or not response.host):
            log.info("no coordinator for group %s: the answer does not name it", group)
            return None
        if answer.error_code:
            log.info("no coordinator for group %s: %s", group, error_for_code(answer.error_code))
            self._groups[group] = -1
            return None
        self._coordinators[answer.node_id] = BrokerMetadata(answer.node_id, answer.host, answer.port)
        self._groups[group] = answer.node_id
        return answer.node_id

    def add_listener(self, listener: Listener) -> None:
        """Calls `listener(self)` after each update. An exception of it is logged."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Stops calling a listener. Raises `ValueError` if it was never added."""
        self._listeners.remove(listener)

    def with_partitions(self, partitions_to_add: Iterable[tuple[str, PartitionMetadata]]) -> ClusterMetadata:
        """A copy that knows these partitions, (topic, partition) each, as well.

        It has the same history and times, but no listeners and no futures.
        """
        copied = ClusterMetadata(clock=self._clock, rand=self._rand, **self.config)
        copied._snapshot = with_partitions(self._snapshot, partitions_to_add, self._snapshot.brokers)
        copied._timer = copy(self._timer)
        copied._memory = self._memory.copy()
        copied._groups = dict(self._groups)
        copied._coordinators = dict(self._coordinators)
        return copied

    def restore(self, snapshot: ClusterSnapshot) -> None:
        """Goes on from another object's snapshot, so that leader epochs don't go backwards here either. The updates requested so far
        resolve with it; `ttl` stays as it is."""
        self._snapshot = snapshot
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            future.success(self)
        self._notify()

    def _settle(self, met: int, exception: BaseException | None) -> None:
        settled = [future for demand, future in self._waiting if demand <= met]
        self._waiting = [(demand, future) for demand, future in self._waiting if demand > met]
        for future in settled:
            if exception is None:
                future.success(self)
            else:
                future.failure(exception)

    def _notify(self) -> None:
        call_each(self._listeners, self)


def error_of(metadata: MetadataResponse) -> KafkaActorsError | None:
    """The error of a response as a whole; None for one that can be taken in."""
    if not metadata.error_code and not metadata.brokers:
        return NoBrokersError("a broker answered Metadata without naming any broker")
    return error_for_code(metadata.error_code, request="Metadata")


def _bootstrap_brokers(servers: Any) -> dict[int, BrokerMetadata]:
    addresses = [parse_address(text) for text in parse_bootstrap_servers(servers)]
    return {-i: BrokerMetadata(-i, host, port) for i, (host, port) in enumerate(addresses, 1)}


def _incomplete(metadata: MetadataResponse) -> bool:
    """Whether it has a temporary error, such as a partition without a leader."""
    for topic in metadata.topics:
        error = error_for_code(topic.error_code)
        if error is not None and error.invalid_metadata:
            return True
        if any(p.leader_id < 0 for p in topic.partitions):
            return True
    return False
