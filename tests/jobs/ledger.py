"""A ledger of crashes: numbered records go through a job that delivers exactly once while its processes and brokers are killed and stopped;
whoever reads the results with `read_committed` has to find each record once, and each partition in order.

Faults at named steps happen inside a worker: whichever comes first to the step takes the fault, and sends itself the signal.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from atomic_files import write_atomically
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.job.transactions import prefix_of
from kafka_actors.testing import KafkaCluster
from kafka_actors.types import TopicPartition

from .driver import Driver

STEPS = (
    "before produce",
    "after produce",
    "before offsets",
    "after offsets",
    "before end",
    "after end",
    "before begin",
)
"""Steps of a worker's transaction at which it may be killed or stopped."""
FROZEN_S = 15.0


class Traps:
    """Faults that wait, as files in a directory, for a worker that comes to their step."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def set(self, step: str, number: signal.Signals) -> None:
        write_atomically(self.directory / step.replace(" ", "-"), str(int(number)))

    def clear(self) -> None:
        for path in self.directory.iterdir():
            if not path.name.startswith(("taken", ".")):
                path.unlink(missing_ok=True)

    def stopped(self) -> list[int]:
        """Processes that have stopped themselves."""
        return [int(path.read_text()) for path in self.directory.glob("taken-*-stopped")]

    def step(self, step: str) -> None:
        path = self.directory / step.replace(" ", "-")
        taken = self.directory / f"taken-{time.monotonic_ns()}-{os.getpid()}"
        try:
            path.rename(taken)
        except OSError:
            return
        number = int(taken.read_text())
        if number == signal.SIGSTOP:
            write_atomically(taken.with_name(taken.name + "-stopped"), str(os.getpid()))
        os.kill(os.getpid(), number)

    def _refused(self, method: str, error: ka.KafkaActorsError) -> None:
        path = self.directory / f"taken-{time.monotonic_ns()}-{os.getpid()}-refused"
        write_atomically(path, f"{os.getpid()} {method}: {type(error).__name__}: {error}")

    def refused(self) -> list[str]:
        """Returns the refusals that workers got of brokers and of their producers, each with process, method and error."""
        return [path.read_text() for path in sorted(self.directory.glob("taken-*-refused"))]

    def watch_failures(self, owner: Any) -> None:
        """Notes the error of each of the worker's sessions that fails, also that of records on their way."""
        original = owner.fail

        def fail(sessions: Any, session: Any, error: Any) -> Any:
            self._refused("its transaction", error)
            return original(sessions, session, error)

        owner.fail = fail

    def around(self, owner: Any, method: str, before: str | None, after: str | None) -> None:
        """Has a method of a class come to these steps."""
        original = getattr(owner, method)

        def stepping(*args: Any, **options: Any) -> Any:
            if before is not None:
                self.step(before)
            try:
                result = original(*args, **options)
            except ka.KafkaActorsError as error:
                self._refused(method, error)
                raise
            if after is not None:
                self.step(after)
            return result

        setattr(owner, method, stepping)


def copier(directory: str, *, is_async: bool = False) -> type:
    """A `process` class that returns each record with the place that it was read from, to the same partition. `is_async`: its calls are
    coroutines, and those of different partitions overlap."""

    class Copier:
        def __init__(self) -> None:
            from kafka_actors.job.worker.producer_sessions import ProducerSessions
            from kafka_actors.sinks.transactional import SessionProducer

            traps = Traps(directory)
            traps.watch_failures(ProducerSessions)
            traps.around(SessionProducer, "begin_transaction", "before begin", None)
            traps.around(SessionProducer, "send_batch", "before produce", "after produce")
            traps.around(SessionProducer, "send_offsets", "before offsets", "after offsets")
            traps.around(SessionProducer, "commit_until_known", "before end", "after end")

        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            places = [
                b"%d:%d" % place
                for place in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
            ]
            return pa.RecordBatch.from_arrays(
                [pa.array(places, pa.binary()), batch["partition"].cast(pa.int32())],
                names=["value", "partition"],
            )

    class AsyncCopier(Copier):
        async def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:  # type: ignore[override]
            await asyncio.sleep(0.005)
            return super().__call__(batch)

    return AsyncCopier if is_async else Copier


class CrashLedger:
    """A job from `source` to `target`, both with `partitions`, and its faults. `seed` makes them."""

    def __init__(
        self,
        cluster: KafkaCluster,
        source: str,
        target: str,
        partitions: int,
        group: str,
        directory: Path,
        seed: int,
    ) -> None:
        self.cluster = cluster
        self.source, self.target, self.group = source, target, group
        self.partitions = partitions
        directory.mkdir(parents=True, exist_ok=True)
        self.traps = Traps(str(directory))
        self.random = random.Random(seed)
        self.running: ka.RunningJob | None = None
        self._produced = 0
        self._end = threading.Event()
        self._load: threading.Thread | None = None
        self._timers: list[threading.Timer] = []
        self._stopped: set[int] = set()
        self._down: set[int] = set()
        self._drivers: list[Driver] = []
        self.told: list[str] = []
        self.last: Any = None
        """The job's transactions, once it is settled."""

    # ------------------------------------------------------------ the job and its records

    def options(self, **options: Any) -> dict[str, Any]:
        """Options of every job of this ledger, and others."""
        config = {
            "start_timeout_s": 600,
            "auto_commit_interval_ms": 300,
            "session_timeout_ms": 15_000,
            **options.pop("config", {}),
        }
        return {
            "topics": self.source,
            "group_id": self.group,
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "delivery": "exactly_once",
            "workers": 3,
            "name": self.group,
            **options,
            "config": config,
        }

    def start(self, **options: Any) -> None:
        more = {"process": copier(str(self.traps.directory)), "sink": ka.KafkaSink(self.target)}
        self.running = ka.Job(**{**more, **self.options(**options)}).start()

    def status(self) -> Any:
        assert self.running is not None
        return self.running.status()

    def start_apart(self, sink: Mapping[str, Any], **options: Any) -> Driver:
        """Starts the job in a process of its own, whose end is that of all its actors. `sink`: options of the sink."""
        job = self.options(**options)
        made = Driver(self.traps.directory, job, ledger={"topic": self.target, **sink})
        self._drivers.append(made)
        return made.started()

    def produce(self, records: float, rate: float) -> None:
        """Writes numbered records in the background, so many a second; infinitely many until `end_load`."""

        def load() -> None:
            with ka.Producer(
                bootstrap_servers=self.cluster.bootstrap_servers, delivery_timeout_ms=600_000
            ) as producer:
                while self._produced < records and not self._end.is_set():
                    count = int(min(max(1, round(rate / 20)), records - self._produced))
                    numbers = range(self._produced, self._produced + count)
                    batch = pa.RecordBatch.from_arrays(
                        [
                            pa.array([b"%d" % n for n in numbers], pa.binary()),
                            pa.array([n % self.partitions for n in numbers], pa.int32()),
                        ],
                        names=["value", "partition"],
                    )
                    producer.send_batch(batch, topic=self.source)
                    self._produced += count
                    self._end.wait(count / rate)

        self._load = threading.Thread(target=load, name="ledger-load")
        self._load.start()

    def end_load(self) -> None:
        """Has no more records written."""
        self._end.set()

    # ------------------------------------------------------------ faults

    def fault(self) -> None:
        """Makes one fault at random."""
        kinds: Iterable[Callable[[], str]] = (
            self._step,
            self._step,
            self._step,
            self._worker,
            self._coordinator,
            self._broker,
            self._scale,
        )
        self.told.append(self.random.choice(list(kinds))())

    def _step(self) -> str:
        step = self.random.choice(STEPS)
        number = self.random.choice((signal.SIGKILL, signal.SIGSTOP))
        self.traps.set(step, number)
        return f"{number.name} of a worker {step}"

    def _worker(self) -> str:
        return self._hit(self._actors("worker"))

    def _coordinator(self) -> str:
        return self._hit(self._actors("coordinator"))

    def _actors(self, kind: str) -> dict[str, int]:
        assert self.running is not None
        return {n: p for n, p in self.running.status().actors.items() if n.startswith(kind) and p is not None}

    def _hit(self, actors: dict[str, int]) -> str:
        if not actors:
            return "nobody to hit"
        name = self.random.choice(sorted(actors))
        number = self.random.choice((signal.SIGKILL, signal.SIGSTOP))
        with suppress(ProcessLookupError):
            os.kill(actors[name], number)
        if number == signal.SIGSTOP:
            self._stopped.add(actors[name])
            self._later(FROZEN_S, self._continue, actors[name])
        return f"{number.name} of {name}"

    def _continue(self, pid: int) -> None:
        self._stopped.discard(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _broker(self) -> str:
        """One at a time: with two of three gone nothing can be written."""
        if self._down:
            return "a broker is down already"
        topic, key = self.random.choice(
            (
                ("__consumer_offsets", self.group),
                ("__transaction_state", f"{prefix_of(self.group, self.group)}-worker-0"),
            )
        )
        node = self._leader_of(topic, key)
        if node is None:
            return f"no leader of {topic}"
        self._down.add(node)
        if self.random.random() < 0.5:
            self.cluster.kill(node)
            self._later(8.0, self._up, node, self.cluster.restart)
            return f"SIGKILL of broker {node}, for {topic}"
        self.cluster.pause(node)
        self._later(FROZEN_S, self._up, node, self.cluster.resume)
        return f"SIGSTOP of broker {node}, for {topic}"

    def _leader_of(self, topic: str, key: str) -> int | None:
        try:
            with ka.Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                described = admin.describe_topics([topic])[topic]
        except ka.errors.UnknownTopicOrPartitionError:  # nobody has committed so far
            return None
        number = _java_hash(key) % len(described.partitions)
        leader = next(p.leader for p in described.partitions if p.partition == number)
        return None if leader is None or leader < 0 else leader

    def _up(self, node: int, bring: Callable[[int], None]) -> None:
        try:
            bring(node)
        finally:
            self._down.discard(node)

    def _scale(self) -> str:
        assert self.running is not None
        workers = self.random.randint(2, 4)
        self.running.scale(workers)
        return f"{workers} workers"

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        timer = threading.Timer(seconds, call, args)
        timer.start()
        self._timers.append(timer)

    # ------------------------------------------------------------ what must hold

    def committed(self) -> dict[TopicPartition, int]:
        return {TopicPartition(*tp): o for tp, o in self.cluster.committed(self.group).items()}

    def settle(self, seconds: float) -> None:
        """Heals what was hurt, waits until all is committed, and stops the job."""
        if self._load is not None:
            self._load.join()
        self.heal()
        ends = {TopicPartition(*tp): o for tp, o in self.cluster.end_offsets(self.source).items()}
        try:
            until(lambda: self.committed() == ends, seconds, "everything committed to the end", pause=0.5)
        except AssertionError as error:
            if self.running is not None:
                status = self.running.status()
                error.add_note("\n".join(map(str, [*status.partitions, *status.timeline[-30:], *self.told])))
            raise
        assert self.running is not None
        self.last = self.running.status().transactions
        self.running.stop()

    def heal(self) -> None:
        """Continues what is stopped, starts what is down."""
        for timer in self._timers:
            timer.join(timeout=slow_s(60))
        self.traps.clear()
        for pid in [*self._stopped, *self.traps.stopped()]:
            self._continue(pid)

    def results(self, isolation_level: str = "read_committed") -> dict[int, list[bytes]]:
        """All results, by partition, in their order; with `read_committed` those before the first transaction that is open."""
        found: dict[int, list[bytes]] = {p: [] for p in range(self.partitions)}
        with ka.Consumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([TopicPartition(self.target, p) for p in range(self.partitions)])
            ends = consumer.end_offsets(consumer.assignment())
            deadline = time.monotonic() + slow_s(60)
            while time.monotonic() < deadline:
                batch = consumer.poll_batch(timeout_ms=500)
                if batch is not None and batch.num_rows:
                    found[batch["partition"][0].as_py()] += batch["value"].to_pylist()
                elif all((consumer.position(tp) or 0) >= end for tp, end in ends.items()):
                    break
        return found

    def check(self) -> None:
        """Each record is there once, and in order."""
        found = self.results()
        for partition in range(self.partitions):
            wanted = [
                b"%d:%d" % (partition, n)
                for n in range(self.cluster.end_offsets(self.source).get((self.source, partition), 0))
            ]
            if found[partition] != wanted:
                raise AssertionError(
                    f"partition {partition}: {_difference(wanted, found[partition])}; faults {self.told}"
                )

    def close(self) -> None:
        """Leaves nothing behind, whatever the test came to."""
        self.end_load()
        if self._load is not None:
            self._load.join()
        self.heal()
        for driver in self._drivers:
            driver.close()
        if self.running is not None:
            with suppress(ka.JobFailed):
                self.running.stop(timeout=20)


def _difference(wanted: list[bytes], found: list[bytes]) -> str:
    missing, more = sorted(set(wanted) - set(found)), sorted({v for v in found if found.count(v) > 1})
    at = next(
        (n for n, (w, f) in enumerate(zip(wanted, found, strict=False)) if w != f),
        min(len(wanted), len(found)),
    )
    return f"{len(missing)} missing {missing[:5]}, {len(more)} twice {more[:5]}, {len(found)} of {len(wanted)}, differs at {at}"


def _java_hash(text: str) -> int:
    """`Utils.abs(key.hashCode)` of Java, by which a group or a transactional id has its partition."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
