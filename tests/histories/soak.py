"""A long run under faults at random: `python -m histories.soak --minutes 10 --seed 7`, or `make soak MINUTES=10 SEED=7`.

Producers write unique values to one topic of three real brokers; members of several groups read it; brokers, clients and actors are killed,
stopped and moved meanwhile, several at once. At the end all that happened is checked (`checker`): a table, and exit code 1 on an anomaly.
The seed decides which faults come in which order; what they meet, it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from jobs.audit import all_commits, whole_log
from jobs.scene import Scene
from pace import Measuring
from waiting import until

from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.watchdog import Watchdog

from .checker import NAMES, check, repeats
from .clients import Client, recording
from .history import Committed, Event, Fault, Line, Log, Polled, Processed, Sent, Writer, now, read

PARTITIONS = 6
GROUPS = ("consumer", "async", "job")
"""Readers that are groups. Each group has its reader's name."""
CATCH_UP_S = 120.0
"""After the last fault readers have so long, in seconds of a quiet machine, to process all that was written."""
MORE_S = 420.0
"""So much longer than its minutes a run may take in all."""
MOST_FAULTS = 3
"""So many at once."""
Steps = Iterator[float]
"""A fault: yields after its beginning the seconds for which it lasts, and ends it when it is resumed."""


class Soak:
    """One run: who takes part, and the faults."""

    def __init__(self, directory: Path, rng: random.Random, spark: bool) -> None:
        self._directory = directory
        self._rng = rng
        self._spark = spark
        self._topic = "soak"
        self._cluster = KafkaCluster(brokers=3)
        self._own = Writer(directory / "soak.jsonl")
        self._clients: dict[str, Client] = {}
        self._numbers: Counter[str] = Counter()
        self._watchdog = Watchdog()
        self._scene: Scene | None = None
        self._held: set[str] = set()
        """Victims of a fault that lasts."""
        self._gone: set[str] = set()
        """Names of clients that were killed on purpose."""
        self.broken: list[str] = []
        """Clients that ended by themselves, or did not when they were to."""

    # ------------------------------------------------------------ beginning and end

    def start(self) -> None:
        self._cluster.start()
        self._cluster.create_topic(self._topic, PARTITIONS, 3, {"min.insync.replicas": 2})
        for kind, count in (("ours", 2), ("confluent", 1), ("consumer", 2), ("async", 2)):
            for _ in range(count):
                self._add(kind)
        if self._spark:
            self._add("spark")
        self._start_job()

    def _start_job(self) -> None:
        import ray

        # Ray's processes import the tests' modules, and keep their files apart from any other Ray's.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(
            address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
        )
        self._scene = Scene(self._cluster, self._topic, PARTITIONS, "job", self._directory)
        self._scene.start(
            process=recording(self._directory, "job"),
            config={"session_timeout_ms": 10_000, "request_timeout_ms": 4_000},
        )

    def _add(self, kind: str) -> None:
        self._numbers[kind] += 1
        name = f"{kind}-{self._numbers[kind]}"
        client = Client(
            self._directory,
            kind,
            name,
            reader=kind,
            group=kind,
            servers=self._cluster.bootstrap_servers,
            topic=self._topic,
            partitions=PARTITIONS,
            each=2,
            pause_s=0.1,
        )
        self._watchdog.watch(client.pid)
        self._clients[name] = client

    def close(self) -> None:
        """Ends whatever still runs."""
        for client in self._clients.values():
            if client.alive:
                client.kill()
        if self._scene is not None:
            import ray

            with suppress(Exception):
                self._scene.close()
            ray.shutdown()
        self._cluster.stop()
        self._watchdog.close()
        self._own.close()

    # ------------------------------------------------------------ faults

    def run(self, seconds: float) -> None:
        """Lets faults begin and end until the time is over, and ends those that last."""
        kinds = self._kinds()
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        lasting: list[tuple[float, Steps]] = []
        end, following = time.monotonic() + seconds, time.monotonic() + 5
        while time.monotonic() < end:
            if time.monotonic() >= following and len(lasting) < MOST_FAULTS:
                name = self._rng.choices(names, weights)[0]
                steps = kinds[name][1](name)
                with suppress(StopIteration):
                    lasting.append((time.monotonic() + next(steps), steps))
                following = time.monotonic() + self._rng.uniform(0.5, 5)
            for due, steps in list(lasting):
                if time.monotonic() >= due:
                    lasting.remove((due, steps))
                    next(steps, None)
            self._look_after_clients()
            time.sleep(0.1)
        for _, steps in lasting:
            next(steps, None)
        self._cluster.heal()

    def _kinds(self) -> dict[str, tuple[int, Callable[[str], Steps]]]:
        """Each kind of fault, with how often it is to come compared with the others."""
        kinds: dict[str, tuple[int, Callable[[str], Steps]]] = {
            "broker killed": (3, self._kill_broker),
            "broker stopped": (3, self._stop_broker),
            "leaders elected": (2, self._elect),
            "partitions reassigned": (1, self._reassign),
        }
        for kind in ("ours", "confluent", "consumer", "async"):
            kinds[f"{kind} killed"] = (1, self._kill_client)
            kinds[f"{kind} stopped"] = (2, self._stop_client)
            kinds[f"{kind} left"] = (1, self._end_client)
        for kind in ("worker", "coordinator", "connection", "metadata"):
            kinds[f"{kind} killed"] = (1, self._kill_actor)
            kinds[f"{kind} stopped"] = (1, self._stop_actor)
        return kinds

    def _note(self, kind: str, victim: object) -> None:
        print(f"{time.strftime('%H:%M:%S')} {kind}: {victim}", flush=True)
        self._own.write(Fault(now(), kind, str(victim)))

    def _kill_broker(self, kind: str) -> Steps:
        if (broker := self._broker()) is not None:
            self._note(kind, broker)
            self._cluster.kill(broker)
            yield self._rng.uniform(0.5, 12)
            self._cluster.restart(broker, wait=False)
            self._held.discard(f"broker {broker}")

    def _stop_broker(self, kind: str) -> Steps:
        if (broker := self._broker()) is not None:
            self._note(kind, broker)
            self._cluster.pause(broker)
            yield self._rng.uniform(0.5, 12)
            self._cluster.resume(broker)
            self._held.discard(f"broker {broker}")

    def _broker(self) -> int | None:
        """One that runs; None where two are held already: the last one goes on."""
        left = [b for b in self._cluster.broker_ids if f"broker {b}" not in self._held]
        if len(left) == 1:
            return None
        broker = self._rng.choice(left)
        self._held.add(f"broker {broker}")
        return broker

    def _elect(self, kind: str) -> Steps:
        from confluent_kafka import ElectionType, KafkaException, TopicPartition

        self._note(kind, "preferred")
        partitions = [TopicPartition(self._topic, p) for p in range(PARTITIONS)]
        with suppress(KafkaException):
            self._cluster.admin.elect_leaders(ElectionType.PREFERRED, partitions, request_timeout=5).result(5)
        yield 0.0

    def _reassign(self, kind: str) -> Steps:
        """Gives each partition two or three replicas in another order, of which the first is preferred as leader."""
        brokers = self._cluster.broker_ids
        wanted = {p: self._rng.sample(brokers, self._rng.choice([2, 3])) for p in range(PARTITIONS)}
        self._note(kind, wanted)
        file = self._directory / "reassignment.json"
        partitions = [{"topic": self._topic, "partition": p, "replicas": r} for p, r in wanted.items()]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        arguments = ["--bootstrap-server", self._cluster.bootstrap_servers, "--execute"]
        self._cluster.tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *arguments,
            "--reassignment-json-file",
            str(file),
            check=False,
            timeout=60,
        )
        yield self._rng.uniform(1, 3)
        yield from self._elect("leaders elected")

    def _client(self, kind: str) -> Client | None:
        """One of this kind of fault's kind that runs and is not held."""
        prefix = f"{kind.split()[0]}-"
        running = [
            c
            for name, c in self._clients.items()
            if name.startswith(prefix) and name not in self._held and c.alive
        ]
        return self._rng.choice(running) if running else None

    def _kill_client(self, kind: str) -> Steps:
        if (client := self._client(kind)) is not None:
            self._note(kind, client.name)
            self._forget(client)
            client.kill()
            yield self._rng.uniform(0, 5)
            self._add(client.kind)

    def _end_client(self, kind: str) -> Steps:
        if (client := self._client(kind)) is not None:
            self._note(kind, client.name)
            client.ask_to_end()
            self._gone.add(client.name)
            yield self._rng.uniform(0, 5)
            self._add(client.kind)

    def _stop_client(self, kind: str) -> Steps:
        if (client := self._client(kind)) is not None:
            self._note(kind, client.name)
            self._held.add(client.name)
            os.kill(client.pid, signal.SIGSTOP)
            yield self._rng.uniform(0.5, 15)
            os.kill(client.pid, signal.SIGCONT)
            self._held.discard(client.name)

    def _forget(self, client: Client) -> None:
        del self._clients[client.name]
        self._watchdog.forget(client.pid)

    def _actor(self, kind: str) -> tuple[str, int] | None:
        assert self._scene is not None
        running = sorted(self._scene.pids(kind.split()[0]).items())
        return self._rng.choice(running) if running else None

    def _kill_actor(self, kind: str) -> Steps:
        if (actor := self._actor(kind)) is not None:
            self._note(kind, actor[0])
            with suppress(ProcessLookupError):
                os.kill(actor[1], signal.SIGKILL)
            yield 1.0

    def _stop_actor(self, kind: str) -> Steps:
        if (actor := self._actor(kind)) is not None:
            self._note(kind, actor[0])
            with suppress(ProcessLookupError):
                os.kill(actor[1], signal.SIGSTOP)
            yield self._rng.uniform(0.5, 15)
            with suppress(ProcessLookupError):
                os.kill(actor[1], signal.SIGCONT)

    def _look_after_clients(self) -> None:
        """A client that ended by itself is broken, and another takes its place; one that was to end is forgotten once it has."""
        for name, client in list(self._clients.items()):
            if not client.alive:
                self._forget(client)
                if client.process.returncode != 0 or name not in self._gone:
                    self.broken.append(f"{name} ended with {client.process.returncode}: see {client.log}")
                if name not in self._gone:
                    self._add(client.kind)

    # ------------------------------------------------------------ the end

    def finish(self) -> None:
        """Ends the producers, lets readers catch up, ends them, and adds logs and commits to the history."""
        self._end(
            [c for c in self._clients.values() if c.kind in ("ours", "confluent") or c.name in self._gone]
        )
        logs: dict[int, list[Any]] = defaultdict(list)
        for message in whole_log(self._cluster.bootstrap_servers, self._topic):
            logs[message.partition()].append(message)
        for (_, partition), end in self._cluster.end_offsets(self._topic).items():
            values = [m.value().decode() for m in logs[partition]]
            offsets = [m.offset() for m in logs[partition]]
            self._own.write(Log(now(), self._topic, partition, offsets, values, end))
        readers = {*GROUPS, *(["spark"] if self._spark else [])}
        written = {(p, m.offset()) for p, messages in logs.items() for m in messages}
        behind = Behind(self._directory, readers, written)
        try:
            until(lambda: not behind.left(), CATCH_UP_S, "readers to catch up", 1.0, shown=behind.left)
        except AssertionError as error:
            self.broken.append(str(error))
        self._end(list(self._clients.values()))
        assert self._scene is not None
        assert self._scene.running is not None
        try:
            self._scene.running.stop(timeout=60)
        except Exception as error:
            self.broken.append(f"the job did not end well: {error!r}")
        last: Counter[tuple[str, int]] = Counter()
        for at, group, partition, offset in all_commits(self._cluster.bootstrap_servers):
            if group in GROUPS:
                # In the order of the log, whatever the clocks say of two that came within a millisecond of each other.
                place = (group, partition.partition)
                last[place] = max(last[place], int(at * 1000))  # type: ignore[assignment]
                self._own.write(Committed(last[place] / 1000, *partition, group, offset))

    def _end(self, clients: list[Client]) -> None:
        for client in clients:
            if client.process.stdin is not None and not client.process.stdin.closed:
                client.ask_to_end()
        for client in clients:
            try:
                code = client.ended(60)
            except AssertionError as error:
                self.broken.append(f"{client.name} did not end: {error}")
                client.kill()
            else:
                if code != 0:
                    self.broken.append(f"{client.name} ended with {code}: see {client.log}")
            self._forget(client)


class Behind:
    """Follows the files of a history: how many of the records that are written each reader has not processed yet."""

    def __init__(self, directory: Path, readers: set[str], written: set[tuple[int, int]]) -> None:
        self._directory = directory
        self._left = {reader: set(written) for reader in readers}

    def left(self) -> dict[str, int]:
        """The readers that have any left."""
        for reader, left in self._left.items():
            if left:
                for event in read(self._directory.glob(f"{reader}[-.]*.jsonl")):
                    if isinstance(event, Processed):
                        left.difference_update((event.partition, offset) for offset in event.offsets)
        return {reader: len(left) for reader, left in self._left.items() if left}


def report(history: list[Line], broken: list[str]) -> int:
    """Prints the table; returns the number of anomalies and of what broke otherwise."""
    found = check(history)
    sent = sum(isinstance(e, Sent) for e in history)
    logged = sum(len(e.offsets) for e in history if isinstance(e, Log))
    print(f"\nrecords sent {sent}, in the log {logged}")
    again = repeats(history)
    print(f"{'reader':12}{'processed':>12}{'repeats':>12}{'commits':>12}{'members':>12}")
    for reader in sorted({e.reader for e in history if isinstance(e, Processed)}):
        own = [e for e in history if isinstance(e, Event) and getattr(e, "reader", None) == reader]
        processed = sum(len(e.offsets) for e in own if isinstance(e, Processed))
        commits = sum(isinstance(e, Committed) for e in own)
        members = len({e.member for e in own if isinstance(e, Polled)})
        print(f"{reader:12}{processed:12}{again[reader]:12}{commits:12}{members:12}")
    faults = Counter(e.kind for e in history if isinstance(e, Fault))
    print(f"faults {faults.total()}")
    for kind, count in sorted(faults.items()):
        print(f"  {kind:26}{count:4}")
    counts = Counter(anomaly.name for anomaly in found)
    print(f"anomalies {len(found)}")
    for name in NAMES:
        print(f"  {name:58}{counts[name]:6}")
    for name in counts:
        for anomaly in [a for a in found if a.name == name][:10]:
            print(anomaly)
    for line in broken:
        print(f"broken: {line}")
    return len(found) + len(broken)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Faults at random on real brokers, and a check of the history."
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--directory", type=Path, default=Path("build/soak"), help="where histories are kept")
    parser.add_argument("--check", type=Path, help="only check the history in this directory")
    told = parser.parse_args()
    if told.check is not None:
        return 1 if report(read(told.check.glob("*.jsonl")), []) else 0
    seed = random.randrange(2**31) if told.seed is None else told.seed
    directory = (told.directory / f"{seed}-{os.getpid()}").absolute()
    directory.mkdir(parents=True)
    print(f"seed {seed}, history in {directory}", flush=True)
    temporary = tempfile.mkdtemp(prefix="soak-")
    os.environ["RAY_TMPDIR"] = temporary
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGTERM, _too_long)
    signal.alarm(int(told.minutes * 60 + MORE_S))
    soak = Soak(directory, random.Random(seed), told.spark)
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, temporary, ignore_errors=True)
        measuring = Measuring()
        ending.callback(measuring.close)
        ending.callback(soak.close)
        soak.start()
        soak.run(told.minutes * 60)
        soak.finish()
    return 1 if report(read(directory.glob("*.jsonl")), soak.broken) else 0


def _too_long(number: int, _frame: object) -> None:
    raise SystemExit(f"ended by signal {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
