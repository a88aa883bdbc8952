"""`FakeKafka`: brokers in this process, in memory, for any client on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from kafka_actors.base.addresses import format_address
from kafka_actors.protocol import ApiKey

from .fake_topics import FakeTopics, node_of, partition_of
from .machines.calls import BrokerCall, RequestRule, RuleAction, api_key_of
from .machines.cluster_state import NO_LEADER, Release
from .machines.error_answers import Refused
from .machines.fake_cluster import FakeCluster
from .machines.group_offsets import CommittedOffset
from .machines.quotas import ClientQuota
from .machines.settings import broker_settings, feature_level
from .sockets import ClusterSockets

T = TypeVar("T")
OLDEST, NEWEST = (2, 1), (4, 4)
"""Releases that the brokers can be."""


class FakeKafka(FakeTopics):
    """Kafka brokers on ports of this machine that the system gives, which end with `stop`, the `with` block or the process.

    They speak the protocol as Kafka does, from its own state machines: topics with ids, idempotent producers, fetch
    sessions, classic groups with static members, committed offsets, SASL. docs/reference/api/testing.md has what they don't do.

    brokers: number of brokers; their ids are 1, 2, …
    version: release of Kafka whose versions of the APIs they have, "2.1" to "4.4".
    topics: name → number of partitions, created at the start.
    config: settings of the brokers by Kafka's names; `ValueError` for one that they don't have.
    users: name → password; then clients have to authenticate with SASL PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, without TLS.
    racks: rack of each broker.
    seed: of ids and other random choices.
    features: levels of the cluster's features, `{"transaction.version": 1}` for one that was upgraded to 4.x and has not raised it.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = "4.1",
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, Any] | None = None,
        users: Mapping[str, str] | None = None,
        racks: Sequence[str] | None = None,
        host: str = "127.0.0.1",
        seed: int = 0,
        features: Mapping[str, int] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        self._release = _release_of(version)
        self._settings = broker_settings(config or {})
        self._transaction_version = feature_level(features or {}, self._release)
        self._brokers = brokers
        self._topics = dict(topics or {})
        self._users = users
        self._racks = list(racks or [])
        self._host = host
        self._seed = seed
        self._cluster: FakeCluster | None = None
        self._sockets: ClusterSockets | None = None

    # ---------------------------------------------------------------- life

    def start(self) -> FakeKafka:
        """Starts the brokers; returns itself."""
        if self._sockets is not None:
            return self
        self._cluster = FakeCluster(
            Random(self._seed),
            release=self._release,
            settings=self._settings,
            wall_ms=time.time_ns() // 1_000_000,  # wall clock: brokers write it into records and commits
            users=self._users,
            transaction_version=self._transaction_version,
        )
        self._sockets = self._shell(self._cluster)
        for index in range(self._brokers):
            self.add_broker(self._racks[index] if index < len(self._racks) else None)
        for name, partitions in self._topics.items():
            self.create_topic(name, partitions)
        return self

    def _shell(self, cluster: FakeCluster) -> ClusterSockets:
        """Returns what drives the cluster; a network in memory has another one."""
        return ClusterSockets(cluster, self._host)

    def stop(self) -> None:
        """Ends the brokers and closes their sockets. May be called again."""
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.stop()

    def __enter__(self) -> FakeKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker that is alive, separated by commas."""
        return self._call(lambda c: ",".join(format_address(node.host, node.port) for node in c.state.live))

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that are alive."""
        return self._call(lambda c: tuple(node.node_id for node in c.state.live))

    def address(self, broker_id: int) -> tuple[str, int]:
        """Host and port of a broker."""
        return self._call(lambda c: (node_of(c, broker_id).host, node_of(c, broker_id).port))

    def _running(self) -> tuple[FakeCluster, ClusterSockets]:
        if self._cluster is None or self._sockets is None:
            raise RuntimeError(
                "the fake brokers are not running: call start(), or use them in a with statement"
            )
        return self._cluster, self._sockets

    def _call(self, function: Callable[[FakeCluster], T]) -> T:
        cluster, sockets = self._running()
        try:
            return sockets.call(lambda: function(cluster))
        except Refused as refused:
            raise ValueError(f"{refused.args[0]}: {refused.text}") from refused

    # ---------------------------------------------------------------- brokers

    def add_broker(self, rack: str | None = None) -> int:
        """Starts another broker; returns its id. It leads nothing until a topic is created or a leader moves."""
        cluster, sockets = self._running()
        node_id = max(cluster.state.nodes, default=0) + 1
        port = sockets.listen(node_id)
        self._call(lambda c: c.state.add_node(node_id, self._host, port, rack))
        return node_id

    def kill(self, broker_id: int) -> None:
        """Ends a broker at once: its connections close, its port refuses new ones, leaders and coordinators move."""
        _, sockets = self._running()

        def stop(cluster: FakeCluster) -> None:
            node_of(cluster, broker_id)
            sockets.stop_listening(broker_id)
            cluster.stop_node(broker_id)

        self._call(stop)

    def restart(self, broker_id: int, *, new_port: bool = False) -> None:
        """Brings a broker back that was killed, or restarts one; on its old port or a new one. Partitions without a leader get one."""
        cluster, sockets = self._running()
        node = node_of(cluster, broker_id)
        if node.alive:
            self.kill(broker_id)
        port = sockets.listen(broker_id, 0 if new_port else node.port)

        def start(cluster: FakeCluster) -> None:
            node.port = port
            cluster.state.set_alive(broker_id, True)

        self._call(start)

    def remove_broker(self, broker_id: int) -> None:
        """Ends a broker for good: the cluster forgets it, and it is no replica of anything any more."""
        self.kill(broker_id)
        self._call(lambda c: c.state.remove_node(broker_id))

    def disconnect(self, broker_id: int | None = None) -> None:
        """Closes all connections, or those to one broker; clients may connect again at once."""
        self._call(lambda c: c.close_links(_checked(c, broker_id)))

    def set_leader(self, topic: str, partition: int, broker_id: int | None) -> None:
        """Moves a partition's leadership under a new leader epoch; None leaves it without a leader."""

        def move(cluster: FakeCluster) -> None:
            partition_of(cluster, topic, partition)
            node_id = _checked(cluster, broker_id)
            cluster.state.move_leader(topic, partition, NO_LEADER if node_id is None else node_id)

        self._call(move)

    def set_coordinator(self, group: str, broker_id: int) -> None:
        """Makes a broker the coordinator of a group. The group begins there with what was written down: members stay."""
        self._call(lambda c: c.state.offsets_topic.move(group, node_of(c, broker_id).node_id))

    def set_quota(
        self,
        client_id: str | None = None,
        *,
        producer_byte_rate: float | None = None,
        consumer_byte_rate: float | None = None,
    ) -> None:
        """Bounds the bytes per second that a client id may write to and read from each broker; without one, all that have no quota."""
        self._call(
            lambda c: c.state.quotas.set(client_id, ClientQuota(producer_byte_rate, consumer_byte_rate))
        )

    def set_versions(
        self, api: ApiKey | str, versions: tuple[int, int] | None, broker_id: int | None = None
    ) -> None:
        """Has brokers, or one of them, speak these versions of an API, lowest and highest; None: not at all.

        As in a cluster that is being upgraded, or behind a service that is compatible with a part of Kafka. Clients that have
        asked before are not told.
        """
        self._call(lambda c: c.versions.set(api_key_of(api), versions, _checked(c, broker_id)))

    def set_transaction_coordinator(self, transactional_id: str, broker_id: int) -> None:
        """Makes a broker the coordinator of a transactional id. It goes on with what was written down."""
        self._call(lambda c: c.state.transactions_topic.move(transactional_id, node_of(c, broker_id).node_id))

    # ---------------------------------------------------------------- groups and transactions

    def coordinator_of(self, group: str) -> int:
        """Returns the id of a group's coordinator."""
        return self._call(lambda c: c.state.offsets_topic.leader_of(group))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) → committed offset of a group."""
        return {key: found.offset for key, found in self.commits(group).items()}

    def commits(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        """Returns the committed offsets of a group with all that belongs to them: `offset`, `leader_epoch`, `metadata`, `committed_ms`."""
        return self._call(lambda c: c.offsets.committed(group))

    def transaction_state(self, transactional_id: str) -> str:
        """Returns the state of a transactional id as Kafka names it, such as Ongoing; Dead where there is none."""
        return self._call(lambda c: c.transactions.state_of(transactional_id))

    def group_state(self, group: str) -> str:
        """Returns the state of a group as Kafka names it, such as Stable; Dead where there is none."""
        return self._call(lambda c: c.groups.groups[group].state if group in c.groups.groups else "Dead")

    # ---------------------------------------------------------------- single requests

    def on(
        self,
        api: ApiKey | str,
        action: RuleAction,
        *,
        times: int | None = 1,
        broker_id: int | None = None,
        when: Callable[[BrokerCall], bool] | None = None,
    ) -> TakenRequests:
        """Has the next requests of an API (`"Heartbeat"`, or an `ApiKey`) treated otherwise: the first rule that fits decides.

        times: for how many of them; None for all until `end`. broker_id: of one broker only. when: only calls for which it
        returns True; it runs in the brokers' thread.
        """
        rule = RequestRule(api_key_of(api), action, times=times, node_id=broker_id, when=when)

        def add(cluster: FakeCluster) -> None:
            _checked(cluster, broker_id)
            cluster.rules.append(rule)

        self._call(add)
        return TakenRequests(rule, self._call)

    def connections(self, broker_id: int | None = None, *, closed: bool = False) -> int:
        """Number of open connections to a broker, or to all; closed: with those that are closed by now."""
        return self._call(lambda c: c.connections(_checked(c, broker_id), closed=closed))

    def count(self, api: ApiKey | str) -> int:
        """Number of requests of an API so far."""
        return self._call(lambda c: c.counts[api_key_of(api)])

    def requests(self, api: ApiKey | str | None = None) -> list[BrokerCall]:
        """The last requests of an API (None: of all), oldest first: `request`, `version`, `client_id`, `node_id`, `at`, `connection`.

        Of all APIs 1,000 are kept.
        """
        wanted = None if api is None else api_key_of(api)
        return self._call(lambda c: [call for call in c.log if wanted is None or call.api_key == wanted])


def _release_of(version: str) -> Release:
    """Returns the release that a text such as "3.9" or "3.9.2" names. Raises `ValueError` for one that the brokers can't be."""
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.\d+)*", version)
    release = (int(found[1]), int(found[2] or 0)) if found is not None else (0, 0)
    if not OLDEST <= release <= NEWEST:
        oldest, newest = ("{}.{}".format(*bound) for bound in (OLDEST, NEWEST))
        raise ValueError(f"version is {version!r}: fake brokers are Kafka {oldest} to {newest}")
    return release


def _checked(cluster: FakeCluster, broker_id: int | None) -> int | None:
    """Returns the id of a broker that there is, or None for all or none of them."""
    return None if broker_id is None else node_of(cluster, broker_id).node_id


class TakenRequests:
    """Rule of `FakeKafka.on`: the requests that it applied to, and its end."""

    def __init__(self, rule: RequestRule, call: Callable[[Callable[[FakeCluster], Any]], Any]) -> None:
        self._rule = rule
        self._call = call

    @property
    def calls(self) -> list[BrokerCall]:
        """The requests that it applied to so far."""
        found: list[BrokerCall] = self._call(lambda _: list(self._rule.calls))
        return found

    def release(self) -> None:
        """Lets the requests or responses go on that are held."""
        self._call(lambda _: self._rule.release())

    def end(self) -> None:
        """Applies to no further request."""
        self._call(lambda _: self._rule.end())
