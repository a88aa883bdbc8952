"""One Kafka process, a broker, a controller or both: its configuration, its directory, its signals, free ports for it, and the settings that
all brokers of a test cluster have."""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .distribution import Distribution
from .watchdog import Watchdog

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 15_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns `count` different ports that nothing listens on now, below the system's ephemeral range.

    A port of the ephemeral range can't be used for a broker that is killed and restarted: meanwhile an outgoing connection
    may get it, and a client that reconnects may even connect to itself.
    """
    highest = _lowest_ephemeral() - 1
    found: set[int] = set()
    for _ in range(10_000):
        if len(found) == count:
            return sorted(found)
        port = random.randint(_LOWEST, highest)
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            found.add(port)
    raise OSError(f"no {count} free ports between {_LOWEST} and {highest}")


def _lowest_ephemeral() -> int:
    try:
        lowest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except OSError:
        lowest = 32_768
    return max(lowest, _LOWEST + 1_000)


_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"


class NodeFailed(RuntimeError):
    """Raised when a Kafka process ended or did not start in time; the message ends with the last lines of its log."""


class PortTaken(NodeFailed):
    """Raised when another process took the port between the check and Kafka's bind."""


def kafka_uuid() -> str:
    """Returns a random id in Kafka's form: 22 characters of URL-safe base64 that don't start with a dash."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return "A" + text[1:]


class Node:
    """A node of a cluster. It is formatted once, and can be started, signalled and restarted on the same ports."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        properties: Mapping[str, str],
        kafka: Distribution,
        watchdog: Watchdog,
        jvm_options: Sequence[str],
    ) -> None:
        self.node_id = node_id
        self._directory = directory
        self._kafka = kafka
        self._watchdog = watchdog
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[bytes] | None = None
        self._log_read_from = 0
        directory.mkdir(parents=True, exist_ok=True)
        self.log_file.touch()
        self._properties = {**properties, "log.dirs": str(self.data)}
        self.configure({})

    def configure(self, properties: Mapping[str, str]) -> None:
        """Adds to or replaces settings of `server.properties`; the node reads them at its next start."""
        self._properties |= properties
        text = "".join(f"{key}={self._properties[key]}\n" for key in sorted(self._properties))
        (self._directory / "server.properties").write_text(text)

    @property
    def log_file(self) -> Path:
        """File with the output of the process, over all its starts."""
        return self._directory / "node.log"

    @property
    def data(self) -> Path:
        """The node's only log directory."""
        return self._directory / "data"

    @property
    def is_running(self) -> bool:
        """Whether the process exists, also while it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the running node. Raises `NodeFailed` if it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise NodeFailed(f"node {self.node_id} is not running")
        return self._process.pid

    def format(self, cluster_id: str) -> None:
        """Formats the data directory as `kafka-storage format` does; a formatted one is kept."""
        if (self.data / "meta.properties").exists():
            return
        checkpoint = self.data / self._kafka.checkpoint
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._kafka.home / "bootstrap.checkpoint", checkpoint)
        (self.data / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={self.node_id}\ndirectory.id={kafka_uuid()}\n"
        )

    def start(self) -> None:
        """Starts the process and returns at once; `wait_started` waits for it."""
        if self.is_running:
            return
        self._log_read_from = self.log_file.stat().st_size
        command = self._kafka.command(
            "kafka.Kafka", str(self._directory / "server.properties"), options=self._jvm_options
        )
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def wait_started(self, deadline: float) -> None:
        """Waits until the server logs that it has started; `deadline` is a time of `time.monotonic()`."""
        while _STARTED not in (text := self._log_since_start()):
            if not self.is_running:
                kind = PortTaken if _PORT_TAKEN in text else NodeFailed
                raise kind(f"node {self.node_id} ended while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"node {self.node_id} did not start in time:\n{self.log_tail()}")
            time.sleep(0.05)

    def pause(self) -> None:
        """Sends SIGSTOP and waits until the process has stopped: on a busy machine it runs on for a while, and still answers.
        Raises `NodeFailed` if the node does not run."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        if sys.platform != "darwin" or sys.version_info >= (3, 13):  # where Python has it
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Sends SIGCONT. Raises `NodeFailed` if the node does not run."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self, number: signal.Signals, timeout: float = 60.0) -> None:
        """Ends the process with the signal `number`, or with SIGKILL if that takes longer than `timeout` seconds, and waits for it."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._watchdog.forget(self._process.pid)
        self._process = None

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _log_since_start(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_read_from)
            return log.read().decode(errors="replace")


_NEW_GROUPS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}

_PROPERTIES = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Tests use shorter sessions than operators do, and no delay before the first rebalance.
    "group.initial.rebalance.delay.ms": "0",
    # Each half second by default, which is a third of what an idle broker costs.
    "metadata.max.idle.interval.ms": "5000",
    "group.min.session.timeout.ms": "1000",
    # A killed broker is replaced after 5 s instead of 9 s; shorter would fence live ones on a busy machine.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "5000",
    # Small thread pools and buffers: three brokers share a laptop's cores and memory with the tests.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
    # Compaction and retention run within seconds on topics that configure them. By default nothing is deleted, because
    # records with old timestamps would be deleted at once.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


def broker_properties(brokers: int, release: tuple[int, int]) -> dict[str, str]:
    """Returns what all brokers of a cluster of that size have in common."""
    new_groups = _NEW_GROUPS if release >= (4, 0) else {}  # before 4.0, KIP-848 was a preview, off by default
    return {**_PROPERTIES, **new_groups, **_internal_topics(brokers)}


def _internal_topics(brokers: int) -> dict[str, str]:
    replicas = min(3, brokers)
    in_sync = max(1, replicas - 1)
    settings = {}
    for prefix in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{prefix}.replication.factor"] = str(replicas)
        settings[f"{prefix}.num.partitions"] = "4"
    settings["transaction.state.log.min.isr"] = str(in_sync)
    settings["share.coordinator.state.topic.min.isr"] = str(in_sync)
    return settings
