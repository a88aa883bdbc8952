"""A job that delivers exactly once against the same job at least once; one transactional id for each worker against one for each
input partition; and how long there are no results when a worker dies or freezes."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from benchmarks.common import Client, Section, Stage
from benchmarks.data import Data
from benchmarks.our_jobs import Reports, Summing, job_over, own_ray, verify
from benchmarks.reading import Run, Task, cpu_of

EXACTLY_ONCE, AT_LEAST_ONCE = "Job, exactly once", "Job, at least once"
BY_ROLE, BY_PARTITION = "Producer, an id for each worker", "Producer, an id for each partition"
WORKERS = 2
COUNTS = (8, 200)
"""Numbers of input partitions of which ids are compared."""
INTERVALS = 10
VALUE = b"x" * 100
FAULTS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
PARTITIONS = 8
RATE = 1_000
"""Records a second while a worker dies."""
STEADY_S = 6.0
"""Seconds of results before that."""
LONGEST_S = 40.0


def sections() -> list[Section]:
    found = []
    for codec in ("none", "zstd"):
        data = Data(codec, records=5_000_000)
        clients = {EXACTLY_ONCE: copies(data, "exactly_once"), AT_LEAST_ONCE: copies(data, "at_least_once")}
        title = f"100-byte values, {codec}, from topic to topic, commits each second, {WORKERS} workers"
        found.append(Section(f"exactly_once/{codec}", title, clients, [data]))
    for count in COUNTS:
        clients = {BY_ROLE: ids(count, WORKERS), BY_PARTITION: ids(count, count)}
        title = f"What a commit of {count} input partitions takes, by the number of transactional ids"
        found.append(Section(f"exactly_once/ids-{count}", title, clients))
    for fault, number in FAULTS.items():
        title = f"Without results when a worker is {fault}: {RATE:,} records/s, commits each second, {WORKERS} workers"
        found.append(Section(f"exactly_once/{fault}", title, {EXACTLY_ONCE: interrupted_by(number)}))
    return found


def copies(data: Data, delivery: str) -> Client:
    def run(stage: Stage) -> Run:
        target = stage.cluster.create_topic(f"once-{time.monotonic_ns()}", data.partitions)
        run = stage.run(
            "exactly_once:copied", stage.task(data, target=target, delivery=delivery, codec=data.codec)
        )
        stage.cluster.delete_topic(target)
        return run

    return run


def ids(partitions: int, producers: int) -> Client:
    def run(stage: Stage) -> Run:
        task = stage.task(producers=producers, partitions=partitions)
        return stage.run_on_a_new_topic("exactly_once:committed", task, partitions)

    return run


def interrupted_by(number: signal.Signals) -> Client:
    def run(stage: Stage) -> Run:
        name = f"fault-{time.monotonic_ns()}"
        task = stage.task(target=stage.cluster.create_topic(f"{name}-results", PARTITIONS), signal=number)
        task.topic = stage.cluster.create_topic(name, PARTITIONS)
        run = stage.run("exactly_once:interrupted", task)
        for topic in (task.topic, task.options["target"]):
            stage.cluster.delete_topic(topic)
        return run

    return run


# ---------------------------------------------------------------- the clients, each in its own process


def copied(told: dict[str, Any]) -> Run:
    """A bounded job, from the first call of its function to the end of the job: the last commit is part of it."""
    import kafka_actors as ka

    task = Task.of(told)
    options: Mapping[str, Any] = task.options
    with own_ray(), tempfile.TemporaryDirectory() as directory:

        class Copying(Summing):
            def __init__(self) -> None:
                super().__init__(directory, list(task.expected))

            def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
                super().__call__(batch)
                return batch.select(["key", "value", "partition"])

        job = job_over(
            task,
            Copying,
            WORKERS,
            until="latest",
            sink=ka.KafkaSink(options["target"], compression_type=options["codec"]),
            delivery=options["delivery"],
            config={"isolation_level": "read_committed"},
        )
        with job.start() as running:
            running.wait()
            found = running.status().transactions
        reports = Reports(directory).all()
    verify(task, reports)
    reports = [report for report in reports if report["found"]]
    seconds = max(report["last"] for report in reports) - min(report["first"] for report in reports)
    return {
        "records": task.total,
        "seconds": seconds,
        "rate": task.total / seconds,
        "transactions": 0 if found is None else found.committed,
    }


def committed(told: dict[str, Any]) -> Run:
    """Transactions with some records and an offset of each input partition, all producers at once: the time of one interval."""
    return asyncio.run(_committed(Task.of(told)))


async def _committed(task: Task) -> Run:
    from kafka_actors import AsyncProducer, TopicPartition
    from kafka_actors.types import ConsumerGroupMetadata

    partitions, count = task.options["partitions"], task.options["producers"]
    group = ConsumerGroupMetadata(f"group-{task.topic}")
    producers = [
        AsyncProducer(bootstrap_servers=task.bootstrap, transactional_id=f"{task.topic}-{n}", linger_ms=0)
        for n in range(count)
    ]

    async def interval(number: int, offset: int) -> None:
        producer = producers[number]
        own = range(number, partitions, count)
        await producer.begin_transaction()
        for partition in own:
            await producer.send(task.topic, VALUE, partition=partition)
        offsets = {TopicPartition(task.topic, p): offset for p in own}
        await producer.send_offsets_to_transaction(offsets, group)
        await producer.commit_transaction()

    began = time.perf_counter()
    await asyncio.gather(*(producer.init_transactions() for producer in producers))
    initialized = time.perf_counter() - began
    await asyncio.gather(*(interval(n, 0) for n in range(count)))
    cpu, broker_cpu, began = time.process_time(), cpu_of(task.broker_pid), time.perf_counter()
    for number in range(1, INTERVALS + 1):
        await asyncio.gather(*(interval(n, number) for n in range(count)))
    seconds = time.perf_counter() - began
    run = {
        "records": partitions * INTERVALS,
        "seconds": seconds,
        "rate": partitions * INTERVALS / seconds,
        "interval_s": seconds / INTERVALS,
        "init_s": initialized,
        "cpu": time.process_time() - cpu,
        "broker_cpu": cpu_of(task.broker_pid) - broker_cpu,
    }
    await asyncio.gather(*(producer.close() for producer in producers))
    return run


def interrupted(told: dict[str, Any]) -> Run:
    """A job whose worker gets a signal while records come in and a reader of committed results looks on: the longest time for which a
    partition had no new result, from the last one before the signal on; and when the job had noticed."""
    import kafka_actors as ka

    task, over = Task.of(told), threading.Event()
    feeding = threading.Thread(target=feed, args=(task, over))
    with own_ray(), ka.Consumer(bootstrap_servers=task.bootstrap, isolation_level="read_committed") as reader:
        reader.assign([ka.TopicPartition(task.options["target"], p) for p in range(PARTITIONS)])
        job = job_over(
            task,
            lambda batch: batch.select(["key", "value", "partition"]),
            WORKERS,
            sink=ka.KafkaSink(task.options["target"]),
            delivery="exactly_once",
        )
        with job.start() as running:
            feeding.start()
            seen = Arrivals(reader)
            seen.look(STEADY_S)
            worker = running.status().workers[0]
            assert worker.pid is not None  # it has given results
            os.kill(worker.pid, task.options["signal"])
            at = time.monotonic()
            noticed = seen.look(LONGEST_S, until=lambda: running.status().workers[0].name != worker.name)
            seen.look(LONGEST_S, until=lambda: all(last > at + 1 for last in seen.last.values()))
            seen.look(2.0)
            over.set()
            feeding.join()
    without = max(seen.longest.values())
    return {"records": seen.rows, "without_s": without, "noticed_s": noticed, "after_s": without - noticed}


def feed(task: Task, over: threading.Event) -> None:
    """Produces `RATE` records a second until `over`."""
    import kafka_actors as ka

    with ka.Producer(bootstrap_servers=task.bootstrap) as producer:
        while not over.wait(0.05):
            for number in range(int(RATE * 0.05)):
                producer.send(task.topic, VALUE, partition=number % PARTITIONS)


class Arrivals:
    """When a partition's results came last, and the longest time between two of them since the first look."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.last: dict[int, float] = {}
        self.longest: dict[int, float] = {}
        self.rows = 0

    def look(self, longest_s: float, until: Callable[[], bool] = lambda: False) -> float:
        """Reads for so long, or until something holds. Returns how long."""
        began = time.monotonic()
        while (now := time.monotonic()) < began + longest_s and not until():
            if (batch := self._reader.poll_batch(timeout_ms=100)) is None:
                continue
            now, partition = time.monotonic(), batch["partition"][0].as_py()
            if partition in self.last:
                self.longest[partition] = max(self.longest.get(partition, 0.0), now - self.last[partition])
            self.last[partition] = now
            self.rows += batch.num_rows
        return now - began
