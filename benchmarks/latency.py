"""End-to-end latency at 1,000 messages/s: from `produce` to the message in the reader's hands, or to the call of a job's function.

The producer is confluent-kafka for all, in a process of its own, with linger.ms=0; it writes the time into each value,
by the clock that all processes of a machine share. The first 10 s are not counted. The CPU is that of the reader's process, or of all
actors of the job, for each record. In `latency/busy` other processes keep each core busy half of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import OURS, Section, Stage
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE
from benchmarks.reading import MAX_SILENCE_S, Run, Task

RATE = 1_000
SAMPLES, WARM_UP = 15_000, 10_000
"""Of each run; the five runs together have 75,000."""
QUICK_SAMPLES, QUICK_WARM_UP = 3_000, 1_000
PARTITIONS = 8
VALUE_BYTES = 100
BUSY_MS = 5
"""Milliseconds of work, and of sleep, in turn."""
HEAD = np.dtype([("sent", "<i8"), ("number", "<i8"), ("rest", f"V{VALUE_BYTES - 16}")])


def sections() -> list[Section]:
    clients = {
        OURS: "latency:ours",
        CONFLUENT: "latency:confluent",
        "Job, 2 workers": "latency:job",
    }
    title = f"Latency at {RATE:,} messages/s of {VALUE_BYTES} bytes in {PARTITIONS} partitions"
    return [
        Section(
            name,
            title + also,
            {client: measured(where, busy=busy) for client, where in clients.items()},
            notes=f"{CONFLUENT_NOTE}. The producer with `linger.ms=0`",
            # A broker that has just come up compiles its code on one of two cores, which whoever runs first would pay for.
            warm_ups=1,
        )
        for name, also, busy in (
            ("latency", "", False),
            ("latency/busy", ", each core kept half busy by another process", True),
        )
    ]


def measured(where: str, *, busy: bool) -> Callable[[Stage], Run]:
    def run(stage: Stage) -> Run:
        counts = (QUICK_SAMPLES, QUICK_WARM_UP) if stage.options.quick else (SAMPLES, WARM_UP)
        task = stage.task(samples=counts[0], warm_up=counts[1], workers=2)
        with half_busy_cores() if busy else nullcontext():
            return stage.run_on_a_new_topic(where, task, PARTITIONS)

    return run


@contextmanager
def half_busy_cores() -> Iterator[None]:
    """Has a process for each core work half of the time."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", f"from benchmarks.latency import work; work({core}, {os.getpid()})"]
        )
        for core in sorted(os.sched_getaffinity(0))
    ]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def work(core: int, parent: int) -> None:
    """Keeps a core busy half of the time, until it is killed or the process that started it is gone."""
    os.sched_setaffinity(0, {core})
    while os.getppid() == parent:
        until = time.perf_counter() + BUSY_MS / 1000
        while time.perf_counter() < until:
            pass
        time.sleep(BUSY_MS / 1000)


# ---------------------------------------------------------------- the producer


def produce(told: dict[str, Any]) -> dict[str, Any]:
    """A message each millisecond; one that is late doesn't put off the next."""
    import confluent_kafka

    task = Task.of(told)
    producer = confluent_kafka.Producer({"bootstrap.servers": task.bootstrap, "linger.ms": 0})
    total = task.options["samples"] + task.options["warm_up"]
    rest = b"." * (VALUE_BYTES - 16)
    began = time.monotonic()
    for number in range(total):
        ahead = began + number / RATE - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        head = time.monotonic_ns().to_bytes(8, "little") + number.to_bytes(8, "little")
        producer.produce(task.topic, head + rest, partition=number % PARTITIONS)
        producer.poll(0)
    seconds = time.monotonic() - began
    if producer.flush(30):
        raise SystemExit("not all messages were delivered")
    return {"rate": total / seconds}


def start_producer(told: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.client", "benchmarks.latency:produce", json.dumps(told)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- what was seen


class Samples:
    """Latencies in nanoseconds, by the number of the message."""

    def __init__(self, task: Task) -> None:
        self._warm_up = task.options["warm_up"]
        self.total: int = self._warm_up + task.options["samples"]
        self._ns = np.full(self.total, -1, dtype=np.int64)
        self.received = 0

    def add(self, seen: Iterable[tuple[bytes, int]]) -> None:
        """Values of messages, one behind the other, and when they were handed out."""
        for values, now in seen:
            heads = np.frombuffer(values, dtype=HEAD)
            self.fill(heads["number"], now - heads["sent"])

    def fill(self, numbers: npt.NDArray[np.int64], ns: npt.NDArray[np.int64]) -> None:
        self._ns[numbers] = ns
        self.received += len(numbers)

    def run(self, producer: subprocess.Popen[str], cpu_s: float) -> Run:
        """Returns the latencies, and how much of `cpu_s` is for each record."""
        said = producer.communicate()[0]
        if producer.returncode:
            raise SystemExit("the producer failed")
        if (self._ns < 0).any() or self.received != self.total:
            raise SystemExit(f"of {self.total} messages {int((self._ns < 0).sum())} were not read")
        counted = self._ns[self._warm_up :] / 1e6
        p50, p99, p999 = np.percentile(counted, (50, 99, 99.9))
        return {
            "samples": len(counted),
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "p999_ms": float(p999),
            "max_ms": float(counted.max()),
            "cpu_ms": 1000 * cpu_s / self.total,
            "produced_per_s": json.loads(said)["rate"],
        }


# ---------------------------------------------------------------- the readers


def ours(told: dict[str, Any]) -> Run:
    """`poll_batch`."""
    from benchmarks.our_consumer import reader
    from benchmarks.reading import value_bytes

    task = Task.of(told)
    samples = Samples(task)
    with reader(task.of_all(PARTITIONS)) as consumer:
        consumer.poll_batch(timeout_ms=1000)
        producer = start_producer(told)
        cpu_s = time.process_time()
        seen: list[tuple[bytes, int]] = []
        left, heard = samples.total, time.monotonic()
        while left > 0 and time.monotonic() - heard < MAX_SILENCE_S:
            batch = consumer.poll_batch(timeout_ms=1000)
            if batch is not None:
                now = time.monotonic_ns()
                seen.append((bytes(value_bytes(batch.column(1))), now))
                left -= batch.num_rows
                heard = now / 1e9
        cpu_s = time.process_time() - cpu_s
    samples.add(seen)
    return samples.run(producer, cpu_s)


def confluent(told: dict[str, Any]) -> Run:
    """`poll`: `consume` would wait until its list is full."""
    from benchmarks.peers import confluent_consumer

    task = Task.of(told)
    samples = Samples(task)
    consumer = confluent_consumer(task.of_all(PARTITIONS))
    consumer.poll(1.0)
    producer = start_producer(told)
    cpu_s = time.process_time()
    seen: list[tuple[bytes, int]] = []
    heard = time.monotonic()
    while len(seen) < samples.total and time.monotonic() - heard < MAX_SILENCE_S:
        message = consumer.poll(1.0)
        if message is not None:
            now = time.monotonic_ns()
            seen.append((message.value(), now))
            heard = now / 1e9
    cpu_s = time.process_time() - cpu_s
    consumer.close()
    samples.add(seen)
    return samples.run(producer, cpu_s)


def job(told: dict[str, Any]) -> Run:
    """The call of a job's function."""
    from benchmarks.our_jobs import Reports, cpu_of_actors, job_over, own_ray, wait_until
    from benchmarks.reading import value_bytes

    task = Task.of(told)
    samples = Samples(task)

    with own_ray(), tempfile.TemporaryDirectory() as directory:

        class Noting:
            def __init__(self) -> None:
                self._seen: list[tuple[int, bytes]] = []

            def __call__(self, batch: Any) -> None:
                now = time.monotonic_ns()
                self._seen.append((now, bytes(value_bytes(batch.column(1)))))

            def close(self) -> None:
                numbers: list[int] = []
                ns: list[int] = []
                for now, values in self._seen:
                    heads = np.frombuffer(values, dtype=HEAD)
                    numbers += heads["number"].tolist()
                    ns += (now - heads["sent"]).tolist()
                Reports(directory).leave({"numbers": numbers, "ns": ns})

        defined = job_over(task, Noting, task.options["workers"])
        with defined.start() as running:
            time.sleep(1)
            producer = start_producer(told)
            cpu_s = cpu_of_actors(running)
            wait_until(
                lambda: running.status().records >= samples.total, samples.total / RATE + MAX_SILENCE_S
            )
            cpu_s = cpu_of_actors(running) - cpu_s
        for report in Reports(directory).all():
            if report["numbers"]:
                samples.fill(np.array(report["numbers"]), np.array(report["ns"]))
    return samples.run(producer, cpu_s)
