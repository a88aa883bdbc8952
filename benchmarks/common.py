"""What a benchmark is made of, and how it is run: sections, whose clients take turns in fresh processes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.data import Data, Shelf
from benchmarks.reading import Run, Task
from kafka_actors.testing import BENCHMARK_JVM, KafkaCluster
from kafka_actors.testing.distribution import DEFAULT_VERSION

RESULTS = Path(__file__).parent / "results"
OURS = "Consumer"
"""Our in-process consumer, in all tables."""
OUR_CLIENTS = (OURS, "Job", "Producer", "kafka_actors", "pipeline")
"""How the names of ours begin."""
QUICK_SHARE = 0.02
"""Of the records, with --quick."""
SETTLE_S = 1.0


@dataclass(frozen=True)
class Options:
    """How long and how often to measure; the defaults are what counts."""

    rounds: int = 5
    seconds: float = 10.0
    quick: bool = False
    profile: bool = False
    clients: tuple[str, ...] = ()

    def data(self, data: Data) -> Data:
        return data.smaller(QUICK_SHARE) if self.quick else data

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Options:
        quick, profile = arguments.quick, arguments.profile
        rounds = arguments.rounds or (1 if quick or profile else cls.rounds)
        seconds = arguments.seconds or (1.0 if quick else cls.seconds)
        return cls(rounds, seconds, quick, profile, tuple(arguments.clients or ()))


class Stage:
    """A real broker with its topics, and how clients are run against it."""

    def __init__(self, cluster: KafkaCluster, shelf: Shelf, options: Options) -> None:
        self.cluster = cluster
        self.shelf = shelf
        self.options = options

    def task(self, data: Data | None = None, **options: Any) -> Task:
        """The task of reading a topic."""
        data = None if data is None else self.options.data(data)
        return Task(
            bootstrap=self.cluster.bootstrap_servers,
            topic="" if data is None else data.topic,
            expected={} if data is None else self.shelf.get(data),
            seconds=self.options.seconds,
            broker_pid=self.cluster.node_pid(1),
            # librdkafka's queue holds 64 MiB: it could never hold 10,000 large messages.
            at_once=1_000 if data is not None and data.size > 5_000 else 10_000,
            options=options,
        )

    def run(self, where: str, task: Task, *, warms_up: bool = False) -> Run:
        """Runs `module:function` of the benchmarks in a process of its own; what only warms up has no profile."""
        command = [sys.executable, "-m", "benchmarks.client", f"benchmarks.{where}", json.dumps(vars(task))]
        if self.options.profile and not warms_up:
            label = "-".join([where, task.topic, *(f"{k}-{v}" for k, v in task.options.items())])
            command = profiled(label, command)
        limit = 600 + 30 * task.seconds
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]  # py-spy talks as well
        if done.returncode or not lines:
            raise SystemExit(f"{where} failed with exit code {done.returncode}")
        result: Run = json.loads(lines[-1])
        return result

    def run_on_a_new_topic(self, where: str, task: Task, partitions: int) -> Run:
        """Runs `module:function` on a topic that is made for it, and deleted afterwards."""
        task.topic = self.cluster.create_topic(f"{where.partition(':')[0]}-{time.monotonic_ns()}", partitions)
        result = self.run(where, task)
        self.cluster.delete_topic(task.topic)
        return result


def profiled(label: str, command: list[str]) -> list[str]:
    """The command with its stacks recorded, native ones and those of its children too, one line a stack with its count."""
    target = RESULTS / f"profile-{re.sub('[^A-Za-z0-9]+', '-', label)}.txt"
    spy = str(Path(sys.executable).with_name("py-spy"))
    return [spy, "record", "-f", "raw", "-t", "-n", "-s", "-r", "200", "-o", str(target), "--", *command]


Client = Callable[[Stage], Run]


@dataclass(frozen=True)
class Section:
    """Clients that are compared with each other: in each round each of them runs once.

    `data` are the topics that they read, `broker_config` what the broker needs beside its defaults, `once` those
    that run in the first round only because no target is about them and they are slow, `notes` which options differ
    from the defaults. `beside` is open from before the first client to behind the last, who runs `warm_ups` times before
    anything counts: for clients that are asked of one process.
    """

    name: str
    title: str
    clients: Mapping[str, Client]
    data: Sequence[Data] = ()
    broker_config: Mapping[str, str] = field(default_factory=dict)
    once: frozenset[str] = frozenset()
    notes: str = ""
    beside: Callable[[Stage], AbstractContextManager[None]] = lambda _: nullcontext()
    warm_ups: int = 0


Results = dict[str, dict[str, Any]]
"""Section → its title, when and where it was measured, and all of its runs."""


def run_sections(sections: Sequence[Section], options: Options) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs sections one after the other, on one broker for all that want the same broker; (name, result) of each."""
    for config in {tuple(sorted(s.broker_config.items())): None for s in sections}:
        chosen = [s for s in sections if tuple(sorted(s.broker_config.items())) == config]
        with KafkaCluster(
            brokers=1, jvm_options=BENCHMARK_JVM, broker_config=dict(config)
        ).start() as cluster:
            uses = [options.data(data) for section in chosen for data in section.data]
            stage = Stage(cluster, Shelf(cluster, uses), options)
            for section in chosen:
                yield section.name, run_section(section, stage)
                for data in section.data:
                    stage.shelf.done(options.data(data))


def run_section(section: Section, stage: Stage) -> dict[str, Any]:
    options = stage.options
    wanted = chosen_clients(section, options)
    for data in section.data:
        # Makes the topic, has it in the page cache, and the broker's code compiled before what counts.
        stage.run("floor:floor", stage.task(data), warms_up=True)
    with section.beside(stage):
        for _ in range(0 if options.quick else section.warm_ups):
            for name, client in section.clients.items():
                if name in wanted:
                    client(stage)
        runs = list(run_rounds(section, stage, wanted))
    return {
        "title": section.title,
        "notes": section.notes,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine_facts(),
        "options": {"rounds": options.rounds, "seconds": options.seconds, "quick": options.quick},
        "stored_mb": {options.data(d).topic: stage.shelf.stored_mb(options.data(d)) for d in section.data},
        "runs": runs,
    }


def run_rounds(section: Section, stage: Stage, wanted: set[str]) -> Iterator[Run]:
    for number in range(stage.options.rounds):
        for name, client in section.clients.items():
            if name not in wanted or (number and name in section.once):
                continue
            time.sleep(SETTLE_S)
            began = time.monotonic()
            run: Run = {"client": name, "round": number, **client(stage)}
            say(section.name, run, time.monotonic() - began)
            yield run


def chosen_clients(section: Section, options: Options) -> set[str]:
    """Those that were asked for; for a profile ours, else all."""
    if options.clients:
        return set(options.clients)
    ours = {name for name in section.clients if name.startswith(OUR_CLIENTS)}
    return ours if options.profile and ours else set(section.clients)


def say(section: str, run: Run, took: float) -> None:
    """One line when a run is over."""
    figures = [f"{key} {value:,.4g}" for key, value in run.items() if isinstance(value, float)]
    what = f"{section} round {run['round'] + 1} {run['client']}"
    print(f"{what:45} {took:5.0f} s  {', '.join(figures)}", file=sys.stderr, flush=True)


def machine_facts() -> dict[str, Any]:
    """What a figure has to be read with."""
    names = ("kafka-actors", "confluent-kafka", "aiokafka", "pyarrow", "ray")
    return {
        "cpus": os.cpu_count(),
        "cpu": cpu_model(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "linux": platform.release(),
        "python": platform.python_version(),
        "kafka": DEFAULT_VERSION,
        **{name: version(name) for name in names},
    }


def commit() -> str:
    """What was measured; with a plus where the work tree differs from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() or "unknown"


def cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.machine()
