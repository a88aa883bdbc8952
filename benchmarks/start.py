"""`Job.start()` to the first record processed: Ray is up, 4 workers."""

from __future__ import annotations

from benchmarks.common import Section
from benchmarks.consumer import reads
from benchmarks.data import Data

DELAY = "group.initial.rebalance.delay.ms"
WORKERS = "Job, 4 workers"


def sections() -> list[Section]:
    data = Data(records=800_000)
    return [
        Section(
            f"start/{delay}",
            f"Job.start() to the first record processed, {DELAY}={delay}",
            {WORKERS: reads("our_jobs:start", data, workers=4)},
            [data],
            broker_config={DELAY: str(delay)},
        )
        for delay in (0, 3000)
    ]
