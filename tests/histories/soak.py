"""A long run under faults at random: `python -m histories.soak --minutes 10 --seed 7`, or `make soak MINUTES=10 SEED=7`.

Producers write unique values to topics of three real brokers; members of several groups read them; brokers, clients and actors are killed,
stopped and moved meanwhile, several at once; and from all topics but one records go (`losses`). At the end all that happened is checked
(`checker`): a table, and exit code 1 on an anomaly.
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
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from jobs.audit import all_commits, all_records
from jobs.scene import Scene
from pace import Measuring
from waiting import SLOWEST, slow_s, until

from kafka_actors.testing.watchdog import Watchdog
from kafka_actors.types import TopicPartition

from .checker import NAMES, check, doubled, repeats
from .clients import GAVE_UP, Client, recording
from .faults import Faults, ProxiedCluster
from .history import (
    DELETED,
    RECREATED,
    TRUNCATED,
    Acknowledged,
    Committed,
    Event,
    Fault,
    Gone,
    Line,
    Log,
    Polled,
    Processed,
    Sent,
    Writer,
    now,
    read,
    read_on,
)
from .losses import STEADY, TOPICS, Losses

GROUPS = ("consumer", "async_consumer", "job")
"""Readers that are groups. Each group has its reader's name."""
CATCH_UP_S = 120.0
"""After the last fault readers have so long, in seconds of a quiet machine, to process all that was written."""
RAY_ATTEMPTS = 10
MORE_S = 420.0
"""So much longer than its minutes a run may take in all, in seconds of a quiet machine."""


class Soak:
    """One run: who takes part, from the beginning to the end."""

    def __init__(self, directory: Path, spark: bool, pause_s: float, rng: random.Random) -> None:
        self.directory = directory
        self._spark = spark
        self._pause_s = pause_s
        self.cluster = ProxiedCluster()
        self.losses = Losses(self.cluster, directory, rng)
        self.own = Writer(directory / "soak.jsonl")
        self.clients: dict[str, Client] = {}
        self._numbers: Counter[str] = Counter()
        self._watchdog = Watchdog()
        self.scene: Scene | None = None
        self.gone: set[str] = set()
        """Names of clients that were asked to end while faults go on."""
        self.broken: list[str] = []
        """Clients that ended by themselves, or did not when they were to."""

    # ------------------------------------------------------------ beginning and end

    def start(self) -> None:
        self._start_ray()
        self.cluster.start()
        self.losses.create_topics()
        for kind in ("producer", "async_producer", "confluent", *(2 * ["consumer", "async_consumer"])):
            self.add(kind)
        if self._spark:
            self.add("spark")
        self._start_job()

    @staticmethod
    def _start_ray() -> None:
        import ray

        # Ray's processes import the tests' modules, and keep their files apart from any other Ray's.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "300")
        for attempts_left in reversed(range(RAY_ATTEMPTS)):
            try:
                ray.init(
                    address="local",
                    num_cpus=4,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                )
            except Exception:
                # On a busy machine parts of it give each other up after 20 or 30 seconds, and no setting says otherwise.
                ray.shutdown()
                if not attempts_left:
                    raise
            else:
                return

    def _start_job(self) -> None:
        self.scene = Scene(self.cluster, STEADY, TOPICS[STEADY], "job", self.directory)
        self.scene.start(
            topics=list(TOPICS),
            process=recording(self.directory, "job"),
            bootstrap_servers=self.cluster.proxied,
            config={
                "session_timeout_ms": 10_000,
                "request_timeout_ms": 4_000,
                "metadata_max_age_ms": 10_000,
                "on_data_loss": "reset",
            },
        )

    def add(self, kind: str) -> None:
        self._numbers[kind] += 1
        name = f"{kind}-{self._numbers[kind]}"
        client = Client(
            self.directory,
            kind,
            name,
            reader=kind,
            group=kind,
            servers=self.cluster.proxied,
            topics=TOPICS,
            pause_s=self._pause_s,
        )
        self._watchdog.watch(client.pid)
        self.clients[name] = client

    def close(self) -> None:
        """Ends whatever still runs."""
        for client in self.clients.values():
            if client.alive:
                client.kill()
        if self.scene is not None:
            import ray

            with suppress(Exception):
                self.scene.close()
            ray.shutdown()
        self.cluster.stop()
        for proxy in self.cluster.proxies.values():
            proxy.close()
        self._watchdog.close()
        self.own.close()

    def forget(self, client: Client) -> None:
        del self.clients[client.name]
        self._watchdog.forget(client.pid)

    def look_after_clients(self) -> None:
        """A client that ended by itself is broken, and another takes its place, which alone happens to a producer of others that gave up; one
        that was to end is forgotten once it has."""
        for name, client in list(self.clients.items()):
            if not client.alive:
                self.forget(client)
                code = client.process.returncode
                if code != GAVE_UP and (code != 0 or name not in self.gone):
                    self.broken.append(f"{name} ended with {code}: see {client.log}")
                if name not in self.gone:
                    self.add(client.kind)

    # ------------------------------------------------------------ the end

    def finish(self) -> None:
        """Ends the producers, lets readers catch up, ends them, and adds logs and commits to the history."""
        producers = ("producer", "async_producer", "confluent")
        self._end([c for c in self.clients.values() if c.kind in producers or c.name in self.gone])
        ids = self.losses.topic_ids()
        for topic in TOPICS:
            logs: dict[int, list[Any]] = defaultdict(list)
            for message in all_records(self.cluster.bootstrap_servers, topic):
                logs[message.partition()].append(message)
            for (_, partition), end in self.cluster.end_offsets(topic).items():
                values = [m.value().decode() for m in logs[partition]]
                offsets = [m.offset() for m in logs[partition]]
                self.own.write(Log(now(), topic, partition, offsets, values, end, ids[topic]))
        self.losses.write(self.own)
        self._keep_batch_headers()
        readers = {*GROUPS, *(["spark"] if self._spark else [])}
        behind = Behind(self.directory, readers)
        try:
            until(lambda: not behind.left(), CATCH_UP_S, "readers to catch up", 1.0, shown=behind.left)
        except AssertionError as error:
            self.broken.append(str(error))
        self._end(list(self.clients.values()))
        assert self.scene is not None
        assert self.scene.running is not None
        try:
            self.scene.running.stop(timeout=slow_s(60))
        except Exception as error:
            self.broken.append(f"the job did not end well: {error!r}")
        last: Counter[tuple[str, TopicPartition]] = Counter()
        for at, group, partition, offset, metadata in all_commits(self.cluster.bootstrap_servers):
            if group in GROUPS:
                # In the order of the log, whatever the clocks say of two that came within a millisecond of each other.
                last[group, partition] = max(last[group, partition], int(at * 1000))
                topic_id = topic_id_of(metadata)
                self.own.write(Committed(last[group, partition] / 1000, *partition, group, offset, topic_id))

    def _keep_batch_headers(self) -> None:
        """Keeps the headers of all batches of records and commits, as a broker has them: with times, producer ids, epochs and sequences."""
        data = self.cluster.data_directory(self.cluster.broker_ids[0])
        folders = [*data.glob(f"{STEADY}-*"), *data.glob("__consumer_offsets-*")]
        segments = ",".join(str(file) for folder in sorted(folders) for file in sorted(folder.glob("*.log")))
        dump = self.cluster.tool(
            "kafka.tools.DumpLogSegments", "--files", segments, check=False, timeout=slow_s(60)
        )
        (self.directory / "batches.txt").write_text(dump.stdout + dump.stderr)

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
                if code not in (0, GAVE_UP):
                    self.broken.append(f"{client.name} ended with {code}: see {client.log}")
            self.forget(client)


def topic_id_of(metadata: str) -> str:
    """The topic's id that a commit names; none where it was made without one."""
    with suppress(ValueError, TypeError, AttributeError):
        return str(json.loads(metadata).get("topicId", ""))
    return ""


class Behind:
    """Follows the files of a history: how many of the records that are in the logs each reader has not processed yet."""

    def __init__(self, directory: Path, readers: set[str]) -> None:
        self._directory = directory
        written = {v for e in read([directory / "soak.jsonl"]) if isinstance(e, Log) for v in e.values}
        self._left = {reader: set(written) for reader in readers}
        self._read: Counter[Path] = Counter()
        self._polled: dict[tuple[Path, str, int, int], str] = {}

    def left(self) -> dict[str, int]:
        """The readers that have any left."""
        for reader, left in self._left.items():
            if left:
                for path in self._directory.glob(f"{reader}[-.]*.jsonl"):
                    events, self._read[path] = read_on(path, self._read[path])
                    for event in events:
                        self._follow(path, event, left)
        return {reader: len(left) for reader, left in self._left.items() if left}

    def _follow(self, path: Path, event: Line, left: set[str]) -> None:
        if isinstance(event, Polled):
            for offset, value in zip(event.offsets, event.values, strict=True):
                self._polled[path, event.topic, event.partition, offset] = value
        elif isinstance(event, Processed):
            for offset in event.offsets:
                left.discard(self._polled.pop((path, event.topic, event.partition, offset), ""))


def report(history: list[Line], broken: list[str]) -> int:
    """Prints the table; returns the number of anomalies and of what broke otherwise."""
    found = check(history)
    sent = sum(isinstance(e, Sent) for e in history)
    logged = sum(len(e.offsets) for e in history if isinstance(e, Log))
    print(
        f"\nrecords sent {sent}, in the log {logged}, of which confluent-kafka wrote {doubled(history)} again"
    )
    acknowledged = {e.value for e in history if isinstance(e, Acknowledged)}
    for how in (TRUNCATED, DELETED, RECREATED):
        went = [value for e in history if isinstance(e, Gone) and e.how == how for value in e.values]
        print(
            f"{how:12}{len(went):8} records went, of which {len(acknowledged & {*went}):6} were acknowledged"
        )
    again = repeats(history)
    print(f"{'reader':16}{'processed':>12}{'repeats':>12}{'commits':>12}{'members':>12}")
    for reader in sorted({e.reader for e in history if isinstance(e, Processed)}):
        own = [e for e in history if isinstance(e, Event) and getattr(e, "reader", None) == reader]
        processed = sum(len(e.offsets) for e in own if isinstance(e, Processed))
        commits = sum(isinstance(e, Committed) for e in own)
        members = len({e.member for e in own if isinstance(e, Polled)})
        print(f"{reader:16}{processed:12}{again[reader]:12}{commits:12}{members:12}")
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
    parser.add_argument(
        "--pause", type=float, default=0.1, help="seconds between two rounds of a producer: the load"
    )
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
    signal.alarm(int(told.minutes * 60 + MORE_S * SLOWEST))
    rng = random.Random(seed)
    soak = Soak(directory, told.spark, told.pause, rng)
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, temporary, ignore_errors=True)
        measuring = Measuring()
        ending.callback(measuring.close)
        ending.callback(soak.close)
        soak.start()
        Faults(soak, rng).go_on(told.minutes * 60)
        soak.finish()
    return 1 if report(read(directory.glob("*.jsonl")), soak.broken) else 0


def _too_long(number: int, _frame: object) -> None:
    raise SystemExit(f"ended by signal {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
