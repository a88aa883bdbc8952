"""What telemetry costs: `Consumer` and `Job` as shipped, where nobody measures, and with an SDK that takes all of it."""

from __future__ import annotations

from benchmarks.common import OURS, Section
from benchmarks.consumer import reads
from benchmarks.data import Data

UNTOLD = f"{OURS} that tells nothing"
MEASURED = f"{OURS}, measured"
JOB, JOB_MEASURED = "Job, 2 workers", "Job, 2 workers, measured"
NOTES = (
    "measured: metrics are collected once a second, and each batch is a span; both are dropped where they would be "
    "sent. Of the consumer that tells nothing the calls are taken out"
)


def sections() -> list[Section]:
    data = Data("none")
    consumers = {
        OURS: reads("our_telemetry:consumer", data, how="off"),
        UNTOLD: reads("our_telemetry:consumer", data, how="untold"),
        MEASURED: reads("our_telemetry:consumer", data, how="measured"),
    }
    jobs = {
        JOB: reads("our_telemetry:job", data, workers=2, how="off"),
        JOB_MEASURED: reads("our_telemetry:job", data, workers=2, how="measured"),
    }
    title = "100-byte values, none"
    return [
        Section("telemetry/consumer", f"{title}, batch by batch", consumers, [data], notes=NOTES),
        Section("telemetry/job", f"{title}, workers that sum", jobs, [data], notes=NOTES),
    ]
