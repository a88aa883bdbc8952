"""`KafkaCluster`: Apache Kafka in KRaft mode as plain Java processes, for tests against real brokers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from .admin import ClusterAdmin
from .distribution import DEFAULT_VERSION, Distribution, KafkaUnavailable, locked
from .node import Node, NodeFailed, PortTaken, broker_properties, free_ports, kafka_uuid
from .watchdog import Watchdog

TEST_JVM = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""JVM options for tests: fast start and little memory, at the cost of peak speed."""
BENCHMARK_JVM = (
    "-Xmx1g",
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""JVM options for benchmarks: those of Kafka's own start script."""
CONTROLLER_ID = 100
_HOST = "127.0.0.1"
_START_ATTEMPTS = 3


class KafkaCluster(ClusterAdmin):
    """A Kafka cluster on this machine, on ports of its own. It ends when it is stopped or when its owner's process ends.

    With `brokers=1` one process is broker (id 1) and controller. With more, brokers have the ids 1…n and the
    controller is a process of its own (id 100), so that killing brokers never costs the metadata quorum.

    `broker_config` adds to or replaces settings of `server.properties` (dotted keys). `racks` names the rack of each broker
    (`broker.rack`), in the order of their ids. `listeners` adds listeners to each broker: name in capitals → security
    protocol, such as `{"LOGIN": "SASL_SSL"}`; their settings go into `broker_config` under `listener.name.login.…`, and
    `bootstrap("LOGIN")` has their addresses. `directory` keeps the data in a directory of yours: it is not removed, and
    the nodes are shut down cleanly. `version` is any release from 3.3 on that Maven Central has. `start_timeout` is in
    seconds. `start` raises `KafkaUnavailable` if Java 17 or Maven is missing.

        with KafkaCluster(brokers=3) as kafka:
            kafka.create_topic("orders", partitions=12, replication_factor=3)
            kafka.kill(kafka.leaders("orders")[0])
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = DEFAULT_VERSION,
        broker_config: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        listeners: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        jvm_options: Sequence[str] = TEST_JVM,
        start_timeout: float = 300.0,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        if racks and len(racks) != brokers:
            raise ValueError(f"racks must name one for each of {brokers} brokers, not {len(racks)}")
        super().__init__()
        self.version = version
        self.broker_ids = tuple(range(1, brokers + 1))
        self._extra = {key: str(value) for key, value in (broker_config or {}).items()}
        self._racks = dict(zip(self.broker_ids, racks, strict=False))
        self._listeners = dict(listeners or {})
        self._kept_directory = None if directory is None else Path(directory).absolute()
        self._jvm_options = tuple(jvm_options)
        self._start_timeout = start_timeout
        self._nodes: dict[int, Node] = {}
        self._ports: dict[int, int] = {}
        self._hosts: dict[int, str] = {}
        self._controller_listener = ""
        self._more_ports: dict[str, dict[int, int]] = {}
        self._watchdog: Watchdog | None = None
        self._directory: Path | None = None
        self._kafka: Distribution | None = None

    # -- life of the cluster

    def start(self) -> KafkaCluster:
        """Starts every node and waits until all brokers are in the cluster's metadata; returns itself."""
        if self._nodes:
            return self
        self._kafka = Distribution.get(self.version)
        if self.version == DEFAULT_VERSION and not self._kafka.class_archive.exists():
            _archive_classes(self._kafka)  # other versions are started too seldom to be worth it
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._launch(self._kafka)
                self.wait_ready()
                return self
            except PortTaken:
                self.stop()
                if attempt == _START_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Ends every node and removes the data; with a `directory`, shuts down cleanly and keeps the data."""
        self._forget_admin()
        number = signal.SIGKILL if self._kept_directory is None else signal.SIGTERM
        for node_id in sorted(self._nodes):  # brokers first: their clean shutdown needs the controller
            self._nodes[node_id].end(number)
        self._nodes = {}
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        if self._kept_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def wait_ready(self, *, timeout: float | None = None) -> None:
        """Waits until every broker that runs is listed in the metadata; raises `NodeFailed` after `timeout` s."""
        deadline = time.monotonic() + (self._start_timeout if timeout is None else timeout)
        running = [node for node in self._nodes.values() if node.is_running]
        for node in running:
            node.wait_started(deadline)
        expected = {node.node_id for node in running} - {CONTROLLER_ID}
        while not expected <= self.live_brokers():
            if time.monotonic() > deadline:
                raise NodeFailed(
                    f"brokers {sorted(expected - self.live_brokers())} did not join the cluster in time"
                )
            time.sleep(0.05)

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- single nodes

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Ids of all processes: the brokers' and, with more than one broker, the controller's."""
        return tuple(sorted(self._nodes))

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas; they stay the same over restarts, unless a broker is moved."""
        return ",".join("{}:{}".format(*self.address(broker)) for broker in self.broker_ids)

    def bootstrap(self, listener: str) -> str:
        """`host:port` of every broker at one of the added `listeners`, separated by commas."""
        return ",".join("{}:{}".format(*self.address(broker, listener)) for broker in self.broker_ids)

    def address(self, broker_id: int, listener: str | None = None) -> tuple[str, int]:
        """Host and port of one broker, at one of the added listeners if one is named."""
        if not self._ports:
            raise RuntimeError(
                "the cluster has no addresses yet: call start(), or use it in a with statement"
            )
        host = self._hosts.get(broker_id, _HOST)
        return host, (self._ports if listener is None else self._more_ports[listener])[broker_id]

    def kill(self, node_id: int) -> None:
        """Sends SIGKILL and waits until the process has ended."""
        self._node(node_id).end(signal.SIGKILL)

    def shutdown(self, node_id: int, *, timeout: float = 60.0) -> None:
        """Sends SIGTERM, for a controlled shutdown that moves leaderships away first, and waits until the process has ended."""
        self._node(node_id).end(signal.SIGTERM, timeout)

    def pause(self, node_id: int) -> None:
        """Sends SIGSTOP and waits until the node has stopped: its sockets stay open, but nothing answers."""
        self._node(node_id).pause()

    def resume(self, node_id: int) -> None:
        """Sends SIGCONT, after `pause`."""
        self._node(node_id).resume()

    def restart(self, node_id: int, *, wait: bool = True) -> None:
        """Shuts the node down cleanly if it runs, and starts it on the same port with the same data."""
        node = self._node(node_id)
        node.end(signal.SIGTERM)
        node.start()
        if wait:
            self.wait_ready()

    def move(self, broker_id: int, host: str = _HOST) -> None:
        """Shuts a broker down cleanly, if it runs, and starts it with the same data on other ports, at another address of
        this machine if `host` is given. Returns when it has joined. A controller can't be moved."""
        if broker_id not in self.broker_ids:
            raise ValueError(f"only a broker can be moved, one of {list(self.broker_ids)}, not {broker_id}")
        node = self._node(broker_id)
        node.end(signal.SIGTERM)
        self._hosts[broker_id] = host
        places = (self._ports, *self._more_ports.values())
        for place, port in zip(places, free_ports(len(places), host), strict=True):
            place[broker_id] = port
        node.configure(self._listening(broker_id))
        node.start()
        self._forget_admin()  # it may know only former addresses
        self.wait_ready()

    def heal(self) -> None:
        """Starts or resumes every node that was killed, shut down or paused; returns when every broker has joined."""
        for node in self._nodes.values():
            if node.is_running:
                node.resume()
            else:
                node.start()
        self.wait_ready()

    def node_pid(self, node_id: int) -> int:
        """Process id of a running node; raises `NodeFailed` when it does not run."""
        return self._node(node_id).pid

    def is_running(self, node_id: int) -> bool:
        """Whether the node's process exists; a paused one does."""
        return self._node(node_id).is_running

    def log(self, node_id: int) -> str:
        """The node's whole log, over its restarts."""
        return self._node(node_id).log_file.read_text(errors="replace")

    def generations(self, group: str) -> list[int]:
        """Generations that a classic group has had so far, read from the brokers' logs."""
        pattern = re.compile(rf"Stabilized group {re.escape(group)} generation (\d+)")
        return sorted(
            {int(found) for node_id in self.broker_ids for found in pattern.findall(self.log(node_id))}
        )

    def data_directory(self, node_id: int) -> Path:
        """The node's log directory: `data_directory(1) / "orders-0"` holds the segments of a partition."""
        return self._node(node_id).data

    # -- Kafka's own tools

    def tool(
        self,
        main: str,
        *args: str,
        timeout: float = 300.0,
        check: bool = True,
        input: str | None = None,  # noqa: A002  the name of subprocess.run's parameter
        jvm_options: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Runs the Java class `main` of Kafka's command-line tools with `args`, and captures what it prints.

        `main` is a full name: `"org.apache.kafka.tools.ConsumerPerformance"`, `"kafka.tools.DumpLogSegments"`.
        Raises `subprocess.CalledProcessError` on an exit code other than 0 unless `check=False`, and
        `subprocess.TimeoutExpired` after `timeout` seconds.
        """
        kafka = self._kafka or Distribution.get(self.version)
        if not kafka.has_tools and main.startswith("org.apache.kafka.tools."):
            raise KafkaUnavailable(
                f"Maven Central has no kafka-tools {self.version}, which {main} belongs to"
            )
        command = kafka.command(main, *args, options=jvm_options)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, input=input
        )
        if check and done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            error.add_note(f"{main} printed:\n{(done.stdout + done.stderr)[-4000:]}")
            raise error
        return done

    # -- inside

    def _node(self, node_id: int) -> Node:
        try:
            return self._nodes[node_id]
        except KeyError:
            has = sorted(self._nodes) or "none: it is not started"
            raise ValueError(f"the cluster has no node {node_id}; its nodes: {has}") from None

    def _launch(self, kafka: Distribution) -> None:
        self._directory = self._kept_directory or Path(tempfile.mkdtemp(prefix="kafka-"))
        self._watchdog = Watchdog()
        if self._kept_directory is None:
            self._watchdog.remove_at_end(str(self._directory))
        combined = len(self.broker_ids) == 1
        brokers = len(self.broker_ids)
        controller_port, *ports = free_ports(1 + brokers * (1 + len(self._listeners)))
        self._ports = dict(zip(self.broker_ids, ports[:brokers], strict=True))
        for number, name in enumerate(self._listeners, 1):
            its_ports = ports[number * brokers : (number + 1) * brokers]
            self._more_ports[name] = dict(zip(self.broker_ids, its_ports, strict=True))
        controller = self.broker_ids[0] if combined else CONTROLLER_ID
        common = {
            **broker_properties(brokers, kafka.release),
            "controller.quorum.voters": f"{controller}@{_HOST}:{controller_port}",
        }
        self._controller_listener = f"CONTROLLER://{_HOST}:{controller_port}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        common["listener.security.protocol.map"] = ",".join(f"{k}:{v}" for k, v in protocols.items())
        properties = {}
        for broker in self.broker_ids:
            properties[broker] = {
                "process.roles": "broker,controller" if combined else "broker",
                **self._listening(broker),
            }
            if self._racks:
                properties[broker]["broker.rack"] = self._racks[broker]
        if not combined:
            properties[controller] = {"process.roles": "controller", "listeners": self._controller_listener}
        cluster_id = self._cluster_id(self._directory)
        for node_id, own in properties.items():
            text = {**common, **own, "node.id": str(node_id), **self._extra}
            directory = self._directory / f"node-{node_id}"
            node = Node(node_id, directory, text, kafka, self._watchdog, self._jvm_options)
            node.format(cluster_id)
            self._nodes[node_id] = node
            node.start()

    def _listening(self, broker: int) -> dict[str, str]:
        """Settings of a broker's listeners and their advertised addresses."""
        own = {"PLAINTEXT": self._ports, **self._more_ports}
        host = self._hosts.get(broker, _HOST)
        listeners = ",".join(f"{name}://{host}:{ports[broker]}" for name, ports in own.items())
        combined = len(self.broker_ids) == 1
        return {
            "listeners": f"{listeners},{self._controller_listener}" if combined else listeners,
            "advertised.listeners": listeners,
        }

    @staticmethod
    def _cluster_id(directory: Path) -> str:
        """The cluster's id, created once for each directory, so that a kept directory can be started again."""
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "cluster-id"
        if not file.exists():
            file.write_text(kafka_uuid())
        return file.read_text()


def _archive_classes(kafka: Distribution) -> None:
    """Has a broker write the archive of its classes when it ends, once for each cache. Raises `NodeFailed` if it doesn't start."""
    archive = kafka.class_archive
    with (
        locked(archive.with_suffix(".lock")),
        tempfile.TemporaryDirectory(prefix="kafka-classes-") as directory,
    ):
        if archive.exists():  # another process has made it meanwhile
            return
        draft = archive.with_suffix(".draft")
        options = (*TEST_JVM, f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds*=off")
        cluster = KafkaCluster(version=kafka.version, directory=directory, jvm_options=options)
        try:
            cluster._launch(kafka)
            cluster.wait_ready()
        finally:
            cluster.stop()
        draft.touch()  # empty where this Java can't write one
        draft.rename(archive)


__all__ = ["BENCHMARK_JVM", "CONTROLLER_ID", "TEST_JVM", "KafkaCluster", "KafkaUnavailable", "NodeFailed"]
