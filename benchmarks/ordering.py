"""Jobs whose calls overlap, by key: records a second from the first call to the last commit, with sleeps as work.

One broker, 8 partitions. The counts are those of a published comparison (KPipe, Confluent's Parallel Consumer, share groups): 25,000 records with
as many keys, a million where a call does nothing.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from typing import Any

import pyarrow as pa

from benchmarks.common import Client, Section, Stage
from benchmarks.our_jobs import Reports, job_over, own_ray
from benchmarks.reading import Run, Task

ASYNC, THREADS = "Job, async, by key", "Job, threads, by key"
SIXTEEN, TWO = "Job, 16 workers on 2 partitions", "Job, 2 workers on 2 partitions"
PARTITIONS = 8
RECORDS = 25_000
MANY = 1_000_000
SHARED, ROWS, BATCH_MS = 200_000, 100, 100
CALLS = 1_000
WORKS_MS = (0, 1, 10, 100)
FEW_KEYS = 1_000


def sections() -> list[Section]:
    found = []
    for work_ms in WORKS_MS:
        records = RECORDS if work_ms else MANY
        clients = {ASYNC: calls(records, records, work_ms)}
        title = f"{records:,} records with as many keys, {work_ms} ms of work in each call, {CALLS:,} calls at once in each of 2 workers"
        found.append(Section(f"ordering/{work_ms}ms", title, clients))
    title = f"{RECORDS:,} records with {FEW_KEYS:,} keys, 100 ms of work in each call"
    found.append(Section("ordering/few-keys", title, {ASYNC: calls(RECORDS, FEW_KEYS, 100)}))
    for workers, threads in ((1, 100), (2, 50)):
        title = f"{RECORDS:,} records, 10 ms of work in each call of a plain function, {threads} threads in each of {workers} workers"
        client = calls(RECORDS, RECORDS, 10, plain=True, workers=workers, concurrency=threads)
        found.append(Section(f"ordering/threads-{workers}", title, {THREADS: client}))
    title = f"{SHARED:,} records with as many keys in 2 partitions, in batches of {ROWS} rows, each of which takes {BATCH_MS} ms"
    clients = {
        name: calls(SHARED, SHARED, BATCH_MS, workers=workers, concurrency=1, rows=ROWS, partitions=2)
        for name, workers in ((SIXTEEN, 16), (TWO, 2))
    }
    found.append(Section("ordering/shared", title, clients))
    return found


def calls(
    records: int,
    keys: int,
    work_ms: int,
    *,
    plain: bool = False,
    workers: int = 2,
    concurrency: int = CALLS,
    rows: int | None = None,
    partitions: int = PARTITIONS,
) -> Client:
    def run(stage: Stage) -> Run:
        task = stage.task(
            records=records,
            keys=keys,
            work_ms=work_ms,
            plain=plain,
            workers=workers,
            concurrency=concurrency,
            rows=rows,
        )
        return stage.run_on_a_new_topic("ordering:called", task, partitions)

    return run


# ---------------------------------------------------------------- in a process of its own


def called(told: dict[str, Any]) -> Run:
    """A bounded job over a topic that is filled first. Each record has to be called once."""
    task = Task.of(told)
    options = task.options
    fill(task, options["records"], options["keys"])
    with own_ray(), tempfile.TemporaryDirectory() as directory:
        rows, work_ms = options["rows"], options["work_ms"]
        if rows:
            target = {"batch_rows": rows}
        else:
            made_by = plain_calls if options["plain"] else async_calls
            target = {"process_message": made_by(directory, work_ms)}
        job = job_over(
            task,
            batch_calls(directory, work_ms) if rows else None,
            options["workers"],
            **target,
            until="latest",
            ordering="key",
            concurrency=options["concurrency"],
        )
        with job.start() as running:
            running.wait()
            end = time.monotonic()
        reports = [report for report in Reports(directory).all() if report["calls"]]
    made = sum(report["calls"] for report in reports)
    if made != options["records"]:
        raise SystemExit(f"{made} calls for {options['records']} records")
    seconds = end - min(report["first"] for report in reports)
    return {
        "records": made,
        "seconds": seconds,
        "rate": made / seconds,
        "cpu": sum(report["cpu"] for report in reports),
    }


def fill(task: Task, records: int, keys: int, value_bytes: int = 100) -> None:
    """Writes records with these many keys in turn, in batches of 10 MB."""
    import kafka_actors as ka

    names = [b"%d" % number for number in range(keys)]
    at_once = 10_000_000 // value_bytes
    with ka.Producer(bootstrap_servers=task.bootstrap) as producer:
        for first in range(0, records, at_once):
            rows = range(first, min(first + at_once, records))
            columns = {
                "key": [names[row % keys] for row in rows],
                "value": [b"x" * value_bytes for _ in rows],
            }
            producer.send_batch(pa.record_batch(columns), topic=task.topic)


class Counting:
    """Counts the records of its calls, and notes when the first one began."""

    def __init__(self, directory: str, work_s: float) -> None:
        self._reports = Reports(directory)
        self.work_s = work_s
        self.calls = 0
        self.first = 0.0

    def count(self, records: int = 1) -> None:
        self.calls += records
        self.first = self.first or time.monotonic()

    def report(self) -> None:
        cpu = sum(os.times()[:2])
        self._reports.leave({"calls": self.calls, "first": self.first, "cpu": cpu})


def async_calls(directory: str, work_ms: float) -> Any:
    class Async(Counting):
        def __init__(self) -> None:
            super().__init__(directory, work_ms / 1000)

        async def __call__(self, message: Any) -> None:
            self.count()
            if self.work_s:
                await asyncio.sleep(self.work_s)

        async def close(self) -> None:
            self.report()

    return Async


def plain_calls(directory: str, work_ms: float) -> Any:
    class Plain(Counting):
        def __init__(self) -> None:
            super().__init__(directory, work_ms / 1000)
            self._lock = threading.Lock()

        def __call__(self, message: Any) -> None:
            with self._lock:
                self.count()
            time.sleep(self.work_s)

        def close(self) -> None:
            self.report()

    return Plain


def batch_calls(directory: str, work_ms: float) -> Any:
    class Batches(Counting):
        def __init__(self) -> None:
            super().__init__(directory, work_ms / 1000)

        def __call__(self, batch: pa.RecordBatch) -> None:
            self.count(batch.num_rows)
            time.sleep(self.work_s * batch.num_rows / ROWS)

        def close(self) -> None:
            self.report()

    return Batches
