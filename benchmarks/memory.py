"""Peak memory over the imports while reading 5 GB; and what a job by key takes whose window is full."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.common import OURS, Section, Stage
from benchmarks.consumer import reads
from benchmarks.data import Data
from benchmarks.job import TWO_WORKERS
from benchmarks.reading import Check, Run, Task

FULL_WINDOW = "Job, by key, window full"
WINDOW, VALUE_BYTES = 100_000, 1_000
SETTLES_S = 3.0


def sections() -> list[Section]:
    data = Data()  # 5.4 GB of keys and values
    clients = {OURS: reads("memory:consumer", data), TWO_WORKERS: reads("our_jobs:memory", data, workers=2)}
    title = f"A job by key whose calls do not end: {WINDOW:,} records of {VALUE_BYTES:,} bytes in its window, against its memory before the first"
    return [
        Section("memory", "Peak memory over the imports, one pass over 5.4 GB", clients, [data]),
        Section("memory/window", title, {FULL_WINDOW: window}),
    ]


def consumer(told: dict[str, Any]) -> Run:
    """One pass in one process; the peak is the kernel's own, VmHWM."""
    from benchmarks.our_consumer import fold, reader

    task = Task.of(told)
    imports_mb = status_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew here
    check = Check(task.expected)
    with reader(task) as reading:
        while not check.complete:
            batch = reading.poll_batch(timeout_ms=1000)
            if batch is not None:
                fold(batch, check)
    check.verify()
    peak_mb = status_mb("VmHWM")
    return {"peak_mb": peak_mb, "imports_mb": imports_mb, "over_imports_mb": peak_mb - imports_mb}


def status_mb(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    if found is None:
        raise SystemExit(f"/proc/self/status has no {field}")
    return int(found[1]) * 1024 / 1e6


# ---------------------------------------------------------------- a full window


def window(stage: Stage) -> Run:
    return stage.run_on_a_new_topic("memory:full_window", stage.task(), 1)


def full_window(told: dict[str, Any]) -> Run:
    """All processes of a job and what they receive into: before the first record, and once its window is full."""
    from benchmarks.our_jobs import Peak, job_over, own_ray, wait_until

    task = Task.of(told)

    class Hanging:
        async def __call__(self, message: Any) -> None:
            await asyncio.Event().wait()

    limits = {"max_in_flight_records": WINDOW, "worker_buffer_bytes": 2 * WINDOW * VALUE_BYTES}
    with own_ray():
        memory = Peak()
        target = {"process_message": Hanging, "ordering": "key", "concurrency": 100, "config": limits}
        job = job_over(task, None, 1, auto_offset_reset="earliest", **target)
        with job.start() as running:
            wait_until(lambda: [p.state for p in running.status().partitions] == ["granted"], 60)
            time.sleep(SETTLES_S)
            before_mb = memory.now(running)
            subprocess.run(
                [sys.executable, "-m", "benchmarks.client", "benchmarks.memory:fill", json.dumps(told)],
                stdout=subprocess.DEVNULL,
                check=True,
            )
            wait_until(lambda: running.status().partitions[0].reason.startswith("its window is full"), 60)
            time.sleep(SETTLES_S)
            full_mb = memory.now(running)
            held = running.status().partitions[0].window
            running.stop(timeout=1)
    assert held is not None  # calls overtake each other
    window_mb = held.records * VALUE_BYTES / 1e6
    grown_mb = full_mb - before_mb
    return {"window_mb": window_mb, "grown_mb": grown_mb, "over_window": grown_mb / window_mb}


def fill(told: dict[str, Any]) -> Run:
    """Writes more than the window takes, in a process whose memory does not count."""
    from benchmarks import ordering

    ordering.fill(Task.of(told), WINDOW + 10_000, WINDOW + 10_000, VALUE_BYTES)
    return {"records": 2 * WINDOW}
