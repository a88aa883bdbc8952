"""Administration of a test cluster: topics, leaders, coordinators, offsets and groups."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .requests import (
    COORDINATOR_MOVING,
    GroupDescription,
    GroupRequestFailed,
    TopicRequestFailed,
    ask_offsets,
    describe_group,
    fetch_offsets,
    find_coordinator,
    find_leaders,
    list_brokers,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

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
        self._wait(
            lambda: name not in self.admin.list_topics(timeout=_REQUEST_TIMEOUT).topics,
            f"topic {name} to be gone",
        )

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
        """Partition → id of its leader, -1 where it has none now. Raises `KeyError` for an unknown topic, and what went wrong last after
        30 seconds without an answer of any broker."""
        deadline = time.monotonic() + _REQUEST_TIMEOUT
        while True:
            try:
                return {
                    partition: leader for partition, (leader, _) in sorted(self._find_leaders(topic).items())
                }
            except (OSError, EOFError, TopicRequestFailed):  # each broker may stand still for seconds
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

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
        """Asks the leaders for offsets until each has answered: a broker may not know the topic, or that it leads, yet."""
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
