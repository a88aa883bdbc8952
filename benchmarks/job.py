"""`Job` with 1, 2 and 4 workers beside `Consumer`, confluent-kafka and aiokafka on the same topic, in one run.

    python -m benchmarks job [--codecs none,zstd] [--runs 3] [--records 10000000] [--workers 1,2,4] [--seconds 10]

Starts a broker of its own and makes the data once per codec; the runs alternate. A run is as many bounded jobs, one
after the other, as its seconds take. A job's clock starts with the first call of its function and ends with the last; its
workers check the CRC-32C of every value, in order, by partition.
Memory is what belongs to each process alone (the object store is shared), at 25 % and at 90 % of the way.
Prints a table and writes it, with all single runs, to benchmarks/results/job.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, Run, filled_topics, parser_of, report, say
from benchmarks.consumer import measure

PEERS = ("ours", "confluent-kafka", "aiokafka")


def main() -> None:
    options = parsed()
    RESULTS.mkdir(exist_ok=True)
    runs: list[Run] = []
    for _, codec, task in filled_topics(options):
        for number in range(options.runs):
            about = {"codec": codec, "run": number}
            for client in PEERS:
                run = measure(client, task, options, f"{codec}-{number}")
                runs.append({**about, "client": client, **run})
                say(runs[-1])
            for workers in options.workers.split(","):
                runs.append({**about, "client": f"Job, {workers} workers", **job_run(task, int(workers))})
                say(runs[-1])
    report(
        "job",
        options,
        runs,
        title=f"{options.records:,} records of {options.size} bytes and an 8-byte key in {options.partitions} "
        f"partitions; medians of {options.runs} alternating runs, range in brackets",
        columns=["start-up s", "private MB at 25 % / 90 %, largest growth"],
        row=row,
    )


def parsed() -> argparse.Namespace:
    parser = parser_of("job", records=10_000_000)
    parser.add_argument("--workers", default="1,2,4")
    return parser.parse_args()


def job_run(task: dict[str, Any], workers: int) -> dict[str, Any]:
    """One bounded job in a fresh process with a fresh Ray."""
    command = [sys.executable, "-m", "benchmarks.job", json.dumps({**task, "workers": workers})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"Job with {workers} workers failed: {done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


# ---------------------------------------------------------------- in the process of one run


class Check:
    """A `process` class: the CRC-32C of all values of each partition, in order, and when it was called."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._sums: dict[int, tuple[int, int]] = {}
        self._first = self._last = 0.0

    def __call__(self, batch: Any) -> None:
        import crc32c

        from benchmarks.peers import value_bytes

        self._first = self._first or time.monotonic()
        partition = batch["partition"][0].as_py()
        count, crc = self._sums.get(partition, (0, 0))
        self._sums[partition] = (count + batch.num_rows, crc32c.crc32c(value_bytes(batch["value"]), crc))
        self._last = time.monotonic()

    def close(self) -> None:
        report = {"sums": self._sums, "first": self._first, "last": self._last}
        (Path(self._directory) / f"{uuid.uuid4()}.json").write_text(json.dumps(report))


def run_jobs(task: dict[str, Any]) -> dict[str, Any]:
    """Passes over the topic until the time of a run is over."""
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    passes: list[dict[str, Any]] = []
    while sum(one["seconds"] for one in passes) < task["seconds"]:
        passes.append(run_job(task))
    ray.shutdown()
    return {
        "records": sum(one["records"] for one in passes),
        "seconds": sum(one["seconds"] for one in passes),
        "start_up": statistics.median(one["start_up"] for one in passes),
        "memory": passes[0]["memory"],
    }


def run_job(task: dict[str, Any]) -> dict[str, Any]:
    """One bounded job over the whole topic."""
    import kafka_actors as ka

    total = sum(count for count, _ in task["expected"].values())
    with tempfile.TemporaryDirectory() as directory:

        class Bound(Check):
            def __init__(self) -> None:
                super().__init__(directory)

        job = ka.Job(
            topics=[task["topic"]],
            group_id=f"bench-{uuid.uuid4()}",
            bootstrap_servers=task["bootstrap"],
            process=Bound,
            workers=task["workers"],
            until="latest",
        )
        made = time.monotonic()
        with job.start() as running:
            samples = watch_memory(running, total)
        reports = [json.loads(path.read_text()) for path in Path(directory).glob("*.json")]
    verify(task, reports)
    first = min(r["first"] for r in reports if r["first"])
    last = max(r["last"] for r in reports)
    return {
        "records": total,
        "seconds": last - first,
        "start_up": first - made,
        "memory": {name: [at.get(name) for at in samples] for name in samples[-1]},
    }


def watch_memory(running: Any, total: int) -> list[dict[str, float]]:
    """MB that belong to each actor's process alone, at 25 % and at 90 % of the way."""
    import psutil

    import kafka_actors as ka

    samples: list[dict[str, float]] = []
    for share in (0.25, 0.9, 2.0):
        while (status := running.status()).records < share * total:
            try:
                running.wait(timeout=0.05)
                return samples
            except ka.KafkaActorsError as error:
                if isinstance(error, ka.JobFailed):
                    raise
        found = {}
        for name, pid in status.actors.items():
            if pid is not None:
                memory = psutil.Process(pid).memory_info()
                found[name] = (memory.rss - memory.shared) / 1e6
        samples.append(found)
    return samples


def verify(task: dict[str, Any], reports: list[dict[str, Any]]) -> None:
    found: dict[str, list[int]] = {}
    for told in reports:
        for partition, sums in told["sums"].items():
            if partition in found:
                raise SystemExit(
                    f"partition {partition} was worked on by two workers in a run without a fault"
                )
            found[partition] = sums
    expected = {p: list(sums) for p, sums in task["expected"].items()}
    if found != expected:
        raise SystemExit(f"read something else than was produced: {found}, expected {expected}")


# ---------------------------------------------------------------- the report


def row(runs: list[Run]) -> list[str]:
    return [f"{statistics.median(run['start_up'] for run in runs):.2f}", growth(runs[-1])]


def growth(run: dict[str, Any]) -> str:
    """The process that grew most between the two samples."""
    if "memory" not in run:
        return f"{run['rss_early']:.0f} / {run['rss_late']:.0f} (RSS)"
    grown = {name: at for name, at in run["memory"].items() if len(at) == 2 and None not in at}
    if not grown:
        return "too short to sample"
    name, (early, late) = max(grown.items(), key=lambda item: item[1][1] - item[1][0])
    return f"{early:.0f} / {late:.0f} ({name})"


if __name__ == "__main__":
    from benchmarks import job

    print(json.dumps(job.run_jobs(json.loads(sys.argv[1]))))
