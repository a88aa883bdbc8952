"""Peak memory over the imports while reading 5 GB."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.common import OURS, Section
from benchmarks.consumer import reads
from benchmarks.data import Data
from benchmarks.job import TWO_WORKERS
from benchmarks.reading import Check, Run, Task


def sections() -> list[Section]:
    data = Data()  # 5.4 GB of keys and values
    clients = {OURS: reads("memory:consumer", data), TWO_WORKERS: reads("our_jobs:memory", data, workers=2)}
    return [Section("memory", "Peak memory over the imports, one pass over 5.4 GB", clients, [data])]


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
