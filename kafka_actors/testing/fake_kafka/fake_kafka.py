"""`FakeKafka`: brokers in this process, in memory, for any client on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from kafka_actors.protocol import ApiKey
from kafka_actors.records.batch import HEADER_SIZE
from kafka_actors.records.kernel import ACTIVE

from .machines.calls import BrokerCall, RequestRule, RuleAction
from .machines.cluster_state import NO_LEADER, FakePartition
from .machines.error_answers import Refused
from .machines.fake_cluster import FakeCluster
from .machines.offsets_requests import CommittedOffset
from .machines.record_batches import BatchRecord, parse
from .machines.settings import broker_settings
from .sockets import ClusterSockets

T = TypeVar("T")


class FakeKafka:
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
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        major, _, minor = version.partition(".")
        self._release = (int(major), int(minor.partition(".")[0] or 0))
        if not self._release >= (2, 1):
            raise ValueError(f"version is {version}: Kafka 2.1 is the oldest that fake brokers can be")
        self._settings = broker_settings(config or {})
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
        )
        self._sockets = ClusterSockets(self._cluster, self._host)
        for index in range(self._brokers):
            self.add_broker(self._racks[index] if index < len(self._racks) else None)
        for name, partitions in self._topics.items():
            self.create_topic(name, partitions)
        return self

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
        return self._call(lambda c: ",".join(f"{node.host}:{node.port}" for node in c.state.live))

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that are alive."""
        return self._call(lambda c: tuple(node.node_id for node in c.state.live))

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
            sockets.stop_listening(broker_id)
            cluster.stop_node(broker_id)

        self._call(stop)

    def restart(self, broker_id: int, *, new_port: bool = False) -> None:
        """Brings a broker back that was killed, or restarts one; on its old port or a new one. Partitions without a leader get one."""
        cluster, sockets = self._running()
        node = cluster.state.nodes[broker_id]
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
        self._call(lambda c: c.close_links(broker_id))

    def set_leader(self, topic: str, partition: int, broker_id: int | None) -> None:
        """Moves a partition's leadership under a new leader epoch; None leaves it without a leader."""
        node = NO_LEADER if broker_id is None else broker_id
        self._call(lambda c: c.state.move_leader(topic, partition, node))

    def set_coordinator(self, group: str, broker_id: int) -> None:
        """Makes a broker the coordinator of a group. The group begins there with what was written down: members stay."""
        self._call(lambda c: c.state.move_coordinator(group, broker_id))

    # ---------------------------------------------------------------- topics and logs

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replica_assignment: list[list[int]] | None = None,
    ) -> str:
        """Creates a topic and returns its name. `ValueError` where Kafka would refuse it.

        `replica_assignment` lists the broker ids of each partition, the leader first, in place of the two numbers.
        """
        configs = {key: str(value) for key, value in (config or {}).items()}

        def create(cluster: FakeCluster) -> str:
            assignment = replica_assignment or cluster.state.place(partitions, replication_factor)
            cluster.state.create_topic(name, assignment, configs)
            return name

        return self._call(create)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records and committed offsets."""
        self._call(lambda c: c.topics.remove(name))

    def recreate_topic(self, name: str, partitions: int | None = None) -> None:
        """Deletes a topic and creates it again at once, under another id and without records."""

        def again(cluster: FakeCluster) -> None:
            old = cluster.state.topics[name]
            assignment = [partition.replicas for partition in old.partitions]
            if partitions is not None:
                assignment = cluster.state.place(partitions, len(assignment[0]))
            cluster.topics.remove(name)
            cluster.state.create_topic(name, assignment, old.configs)

        self._call(again)

    def add_partitions(self, name: str, total: int) -> None:
        """Lets a topic have `total` partitions."""

        def add(cluster: FakeCluster) -> None:
            topic = cluster.state.topics[name]
            more = cluster.state.place(total - len(topic.partitions), len(topic.partitions[0].replicas))
            cluster.state.add_partitions(topic, more)

        self._call(add)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int = 0,
        keys: Sequence[bytes | str | None] | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends records to a partition as one batch, without a client; returns the first one's offset."""
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000  # wall clock: of records
        writer = ACTIVE.writer(HEADER_SIZE)
        for index, value in enumerate(values):
            key = keys[index] if keys is not None else None
            writer.append_one(_bytes(key), _bytes(value), None, timestamp_ms, 1 << 30)
        batch = parse(bytes(writer.seal(-1, -1, -1)))

        def append(cluster: FakeCluster) -> int:
            found = cluster.state.partition(topic, partition)
            limits = cluster.state.topics[topic].limits(self._release)
            done = found.log.append(batch, found.leader_epoch, limits, cluster.state.wall_ms)
            cluster.state.changed.add((topic, partition))
            return done.base_offset

        return self._call(append)

    def records(self, topic: str, partition: int = 0) -> list[BatchRecord]:
        """Returns the records of a partition: `offset`, `timestamp` in ms, `key`, `value`, `headers`."""

        def read(cluster: FakeCluster) -> list[BatchRecord]:
            log = cluster.state.partition(topic, partition).log
            found = [record for batch in log.batches for record in batch.records()]
            return [record for record in found if record.offset >= log.start_offset]

        return self._call(read)

    def leaders(self, topic: str) -> dict[int, int]:
        """Returns partition → id of its leader, -1 for none."""
        return self._call(lambda c: {p.index: p.leader for p in c.state.topics[topic].partitions})

    def beginning_offsets(self, *topics: str) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) → first offset."""
        return self._logs(topics, lambda p: p.log.start_offset)

    def end_offsets(self, *topics: str) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) → offset behind the last record."""
        return self._logs(topics, lambda p: p.log.end_offset)

    def _logs(self, topics: Iterable[str], of: Callable[[FakePartition], int]) -> dict[tuple[str, int], int]:
        return self._call(
            lambda c: {(name, p.index): of(p) for name in topics for p in c.state.topics[name].partitions}
        )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Deletes the records before an offset, as retention or DeleteRecords does."""
        self._change(topic, partition, lambda p: p.log.delete_before(before))

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Loses the records from an offset on, as an unclean election does: the partition has a new leader epoch after it."""

        def truncate(found: FakePartition) -> None:
            found.log.truncate(offset)
            found.lead(found.leader)

        self._change(topic, partition, truncate)

    def compact(self, topic: str, partition: int = 0, *, keep_tombstones: bool = True) -> None:
        """Keeps of each key its last record, in all but the partition's last batch."""
        self._change(topic, partition, lambda p: p.log.compact(keep_tombstones=keep_tombstones))

    def _change(self, topic: str, partition: int, change: Callable[[FakePartition], object]) -> None:
        def run(cluster: FakeCluster) -> None:
            change(cluster.state.partition(topic, partition))
            cluster.state.changed.add((topic, partition))

        self._call(run)

    def coordinator_of(self, group: str) -> int:
        """Returns the id of a group's coordinator."""
        return self._call(lambda c: c.state.coordinator(group))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) → committed offset of a group."""
        return {key: found.offset for key, found in self.commits(group).items()}

    def commits(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        """Returns the committed offsets of a group with all that belongs to them: `offset`, `leader_epoch`, `metadata`, `committed_ms`."""
        return self._call(lambda c: c.offsets.committed(group))

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
        rule = RequestRule(_api_key(api), action, times=times, node_id=broker_id, when=when)
        self._call(lambda c: c.rules.append(rule))
        return TakenRequests(rule, self._call)

    def count(self, api: ApiKey | str) -> int:
        """Number of requests of an API so far."""
        return self._call(lambda c: c.counts[_api_key(api)])

    def requests(self, api: ApiKey | str) -> list[BrokerCall]:
        """The last requests of an API, oldest first: `request`, `version`, `client_id`, `node_id`, `at`. Of all APIs 1,000 are kept."""
        return self._call(lambda c: [call for call in c.log if call.api_key == _api_key(api)])


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


def _api_key(api: ApiKey | str) -> ApiKey:
    if isinstance(api, ApiKey):
        return api
    wanted = api.replace("_", "").lower()
    found = [key for key in ApiKey if key.name.replace("_", "").lower() == wanted]
    if not found:
        raise ValueError(
            f"there is no API {api!r}; names are as in Kafka's definitions, such as OffsetCommit"
        )
    return found[0]


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
