"""A stage for fault tests: one topic, one group, a producer that never stops, and a job whose calls are journalled."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from waiting import slow_s, suspend, until

import kafka_actors as ka
from kafka_actors.testing import KafkaCluster
from kafka_actors.types import TopicPartition

from .audit import lowered
from .driver import Driver
from .foreign import Foreign
from .journal import Entry, Journal, Recorder

Offsets = dict[TopicPartition, int]


class Load(threading.Thread):
    """Produces `each` records to every partition, again and again, `rounds` times a second: seldom, because brokers and workers cost as
    much for a round of few records as for one of many."""

    def __init__(
        self, servers: str, topic: str, partitions: int, *, each: int = 10, rounds: float = 5
    ) -> None:
        super().__init__(name="load", daemon=True)
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        self._each = each
        self._pause = 1 / rounds
        self._end = threading.Event()
        self.acknowledged: Counter[int] = Counter()
        self.acknowledged_at: dict[int, list[float]] = defaultdict(list)
        self.failures: list[Any] = []
        self.sent = 0

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "linger.ms": 2,
                "enable.idempotence": True,
                "sticky.partitioning.linger.ms": 0,
                # A broker that is stopped must not keep records from its successor for long.
                "socket.timeout.ms": 3000,
                "request.timeout.ms": 2000,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        numbers = itertools.count()
        while not self._end.is_set():
            for partition in range(self._partitions):
                for _ in range(self._each):
                    value = b"%d" % next(numbers)
                    producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                    self.sent += 1
            producer.poll(0)
            self._end.wait(self._pause)
        if producer.flush(slow_s(50)):
            self.failures.append("records left unacknowledged")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged[message.partition()] += 1
        times, now = self.acknowledged_at[message.partition()], time.monotonic()
        if not times or now > times[-1] + 0.1:
            times.append(now)

    def stop(self) -> int:
        """Ends and returns how many records the brokers have acknowledged."""
        self._end.set()
        if self.is_alive():
            self.join(slow_s(90))
        assert not self.failures, self.failures[:3]
        assert self.acknowledged.total() == self.sent
        return self.sent


class Scene:
    """See the module. `start` begins the job, `settle` ends the load and checks what must hold in every case."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, partitions: int, group: str, directory: Path
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = group
        self.partitions = [TopicPartition(topic, p) for p in range(partitions)]
        self.journal = Journal(directory / "journal")
        self.load: Load | None = None
        self.running: ka.RunningJob | None = None
        self._faults: list[tuple[int, Offsets]] = []
        self.stopped: set[int] = set()
        self._others: list[Callable[[], None]] = []
        self._foreign: list[Foreign] = []

    # ------------------------------------------------------------ the job and its load

    def options(self, **more: Any) -> dict[str, Any]:
        """Options of every job of this scene, and `more`."""
        return {
            "topics": [self.topic],
            "group_id": self.group,
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "workers": 2,
            **more,
            # A busy machine may take its time to start a dozen processes; that is not what is tested here.
            "config": {"start_timeout_s": 600, **more.get("config", {})},
        }

    def job(self, *, work: float = 0.0, make: float = 0.0, late: bool = False, **options: Any) -> ka.Job:
        options = self.options(**options)
        if "process" not in options and "process_message" not in options:
            options["process"] = recorder(self.journal, work=work, make=make, late=late)
        return ka.Job(**options)

    def start(self, **options: Any) -> ka.RunningJob:
        self.running = self.job(**options).start()
        return self.running

    def under_load(self, *, each: int = 10, rounds: float = 5) -> Load:
        """Starts the producer."""
        self.load = Load(
            self.cluster.bootstrap_servers, self.topic, len(self.partitions), each=each, rounds=rounds
        )
        self.load.start()
        return self.load

    def driver(
        self, *, work: float = 0.0, variables: Mapping[str, str] | None = None, **options: Any
    ) -> Driver:
        """Starts the job in a process of its own, with the same journal; on the same Ray cluster, or the one that these variables of its
        environment lead to."""
        made = Driver(self.journal.directory, self.options(**options), variables, work=work)
        self._others.append(made.close)
        return made

    def foreign(self, assignor: str, **config: Any) -> Foreign:
        """Another client joins the group."""
        made = Foreign(self.cluster.bootstrap_servers, self.topic, self.group, assignor, **config)
        made.start()
        self._foreign.append(made)
        self._others.append(made.leave)
        return made

    def flowing(self, seconds: float = 30.0, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Waits until every partition has been processed after this moment."""
        since, wanted = time.monotonic(), set(partitions or self.partitions)
        until(
            lambda: wanted <= {e.partition for e in self.journal.entries() if e.at > since},
            seconds,
            "calls of process on every partition",
        )

    # ------------------------------------------------------------ who is who

    def status(self) -> Any:
        assert self.running is not None
        return self.running.status()

    def pids(self, kind: str = "") -> dict[str, int]:
        """Live actors whose name begins with `kind`, by name."""
        return {n: p for n, p in self.status().actors.items() if n.startswith(kind) and p is not None}

    def worker_pids(self) -> set[int]:
        return set(self.pids("worker").values())

    def others(self, pid: int) -> set[int]:
        """The processes of the journal but this one."""
        return {e.pid for e in self.journal.entries()} - {pid}

    def owners(self) -> dict[TopicPartition, str]:
        return {TopicPartition(p.topic, p.partition): p.worker for p in self.status().partitions}

    def owned_by(self, worker: str) -> set[TopicPartition]:
        return {p for p, w in self.owners().items() if w == worker}

    def spread(self, workers: int, seconds: float = 30.0) -> None:
        """Waits until every partition is granted, and all of so many workers have some."""

        def holds() -> bool:
            status = self.status()
            granted = [p for p in status.partitions if p.state == "granted"]
            return len(granted) == len(self.partitions) and len({p.worker for p in granted}) == workers

        try:
            until(holds, seconds, f"all partitions granted to {workers} workers")
        except AssertionError as error:
            status = self.status()
            error.add_note(f"owners {self.owners()}\nactors {status.actors}\n{self.running!r}")
            error.add_note("\n".join(str(p) for p in status.partitions))
            raise

    # ------------------------------------------------------------ faults

    def kill(self, name: str) -> float:
        """SIGKILL; returns when it was sent."""
        pid = self.pids()[name]
        self.forgive(pid)
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return at

    def freeze(self, name: str) -> tuple[int, float]:
        """SIGSTOP; returns the process and when."""
        pid = self.pids()[name]
        self.forgive(pid)
        self.stopped.add(pid)
        return pid, suspend(pid)

    def thaw(self, pid: int) -> None:
        """SIGCONT, if the process is still there."""
        self.stopped.discard(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def forgive(self, pid: int) -> None:
        """Notes what is committed before a fault: what a process was handed from there on may come twice."""
        self._faults.append((pid, self.committed()))

    def allowed_duplicates(self) -> Counter[TopicPartition]:
        """For each partition, what the killed and frozen processes were handed behind the last commit before."""
        allowed: Counter[TopicPartition] = Counter()
        handed: dict[int, list[Entry]] = defaultdict(list)
        for entry in self.journal.entries():
            handed[entry.pid].append(entry)
        for pid, committed in self._faults:
            for entry in handed[pid]:
                since = committed.get(entry.partition, 0)
                allowed[entry.partition] += sum(offset >= since for offset in entry.offsets)
        return allowed

    # ------------------------------------------------------------ what must hold

    def committed(self) -> Offsets:
        return {TopicPartition(*tp): o for tp, o in self.cluster.committed(self.group).items()}

    def ends(self) -> Offsets:
        return {TopicPartition(*tp): o for tp, o in self.cluster.end_offsets(self.topic).items()}

    def settle(self, seconds: float = 60.0, *, stop: bool = True) -> Counter[TopicPartition]:
        """Ends the load, waits until all is committed, stops the job; nothing is lost, and no more comes twice
        than the faults allow. Returns the duplicates."""
        if self.load is not None:
            sent = self.load.stop()
            assert sum(self.ends().values()) >= sent
        until(lambda: self.committed() == self.ends(), seconds, "everything committed to the end", pause=0.2)
        if stop and self.running is not None:
            self.running.stop()
        ends = self.ends()
        assert self.committed() == ends
        assert self.missing(ends) == {}
        went_down = lowered(self.cluster.bootstrap_servers, self.group)
        assert went_down == {}, went_down
        duplicates = Counter(self.journal.duplicates())
        allowed = self.allowed_duplicates()
        assert duplicates <= allowed, self._too_many(duplicates - allowed)
        return duplicates

    def _too_many(self, more: Counter[TopicPartition]) -> str:
        """For each partition with more duplicates than allowed: which process had which offsets, and when."""
        lines = []
        faults = [(pid, committed) for pid, committed in self._faults]
        for partition, count in more.items():
            lines.append(
                f"{partition.partition}: {count} too many; faults {[(pid, c.get(partition)) for pid, c in faults]}"
            )
            spans: list[list[Any]] = []
            for entry in self.journal.entries():
                if entry.partition != partition:
                    continue
                first, last = entry.offsets[0], entry.offsets[-1]
                if spans and spans[-1][0] == entry.pid and spans[-1][3] == first - 1:
                    spans[-1][3:] = [last, entry.at]
                else:
                    spans.append([entry.pid, entry.at, first, last, entry.at])
            lines += [f"   {pid}: {a}-{b} at {at:.2f}-{to:.2f}" for pid, at, a, b, to in spans]
        return "\n".join(lines)

    def missing(self, ends: Offsets) -> dict[TopicPartition, list[int]]:
        """Offsets that neither the job nor another member of the group has seen."""
        found: dict[TopicPartition, list[int]] = {}
        for partition, offsets in self.journal.missing(ends).items():
            seen: set[int] = set().union(*(f.seen[partition] for f in self._foreign))
            if left := [o for o in offsets if o not in seen]:
                found[partition] = left
        return found

    def close(self) -> None:
        """Leaves nothing behind, whatever the test came to."""
        for pid in list(self.stopped):
            self.thaw(pid)
        if self.load is not None:
            self.load.stop()
        for end in self._others:
            end()
        if self.running is not None:
            with suppress(ka.JobFailed):
                self.running.stop(timeout=10)


def travel_by_value() -> None:
    """Ray's workers can't import test code: what they need of it goes with what is sent to them."""
    from ray import cloudpickle

    from . import journal, ledger

    for module in (journal, ledger, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)


def recorder(journal: Journal, **more: float) -> Callable[[], Recorder]:
    """A `process` class bound to a journal: a class made in a function travels by value."""
    directory = str(journal.directory)

    class Bound(Recorder):
        def __init__(self) -> None:
            super().__init__(directory, **more)

    return Bound
