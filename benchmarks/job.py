"""`Job` whose workers sum value bytes, beside `Consumer` and as many confluent-kafka processes in one group."""

from __future__ import annotations

from benchmarks.common import OURS, Section
from benchmarks.consumer import reads
from benchmarks.data import Data
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE

ONE_WORKER, TWO_WORKERS = "Job, 1 worker", "Job, 2 workers"
TWO_PROCESSES = f"{CONFLUENT}, 2 processes"


def sections() -> list[Section]:
    found = []
    for codec in ("none", "zstd"):
        data = Data(codec)
        clients = {
            OURS: reads("our_consumer:batches", data),
            ONE_WORKER: reads("our_jobs:throughput", data, workers=1),
            TWO_WORKERS: reads("our_jobs:throughput", data, workers=2),
            TWO_PROCESSES: reads("peers:confluent_group", data, members=2),
        }
        title = f"100-byte values, {codec}, workers that sum"
        found.append(Section(f"job/{codec}", title, clients, [data], notes=CONFLUENT_NOTE))
    return found
