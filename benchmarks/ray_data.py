"""A job beside `ray.data.read_kafka(…).iter_batches()`: the same topic to its end, in a Ray that is up."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from benchmarks.common import Section
from benchmarks.consumer import reads
from benchmarks.data import Data
from benchmarks.job import TWO_WORKERS
from benchmarks.reading import Check, Run, Task, value_bytes

READ_KAFKA = "ray.data.read_kafka"
RECORDS = 10_000_000


def sections() -> list[Section]:
    data = Data(records=RECORDS)
    clients = {
        TWO_WORKERS: reads("ray_data:job", data, workers=2),
        READ_KAFKA: reads("ray_data:read_kafka", data),
    }
    notes = "From the call that starts it to its end, start-up included; every value's bytes in a checksum"
    return [
        Section("ray_data", "A topic to its end on Ray, 100-byte values, none", clients, [data], notes=notes)
    ]


def job(told: dict[str, Any]) -> Run:
    """The workers sum the bytes."""
    from benchmarks.our_jobs import RAY_SETTLES_S, bounded_job, own_ray

    task = Task.of(told)
    with own_ray():
        time.sleep(RAY_SETTLES_S)
        began, _ = bounded_job(task, task.options["workers"])
        return _took(task, time.monotonic() - began)


def read_kafka(told: dict[str, Any]) -> Run:
    """Its tasks read; the batches are summed here, where `iter_batches` hands them out, each as it comes."""
    import ray.data

    from benchmarks.our_jobs import RAY_SETTLES_S, own_ray

    task = Task.of(told)
    with own_ray():
        ray.data.DataContext.get_current().enable_progress_bars = False
        time.sleep(RAY_SETTLES_S)
        check = Check(task.expected)
        began = time.monotonic()
        rows = ray.data.read_kafka(task.topic, bootstrap_servers=task.bootstrap)
        for table in rows.iter_batches(batch_size=None, batch_format="pyarrow"):
            for batch in table.to_batches():
                _add(batch, check)
        seconds = time.monotonic() - began
        check.verify()
        return _took(task, seconds)


def _add(batch: pa.RecordBatch, check: Check) -> None:
    """A block has one partition's records."""
    partition = batch["partition"][0].as_py()
    check.add(partition, batch.num_rows, value_bytes(batch["value"]))


def _took(task: Task, seconds: float) -> Run:
    return {"records": task.total, "seconds": seconds, "rate": task.total / seconds}
