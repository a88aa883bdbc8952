"""`Job` in a process of its own with a Ray of its own: what is called per batch, and what is asked of a run."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.our_consumer import fold
from benchmarks.reading import Check, Run, Task, cpu_of

SAMPLE_S = 0.05
RAY_SETTLES_S = 3.0
"""Ray starts processes in advance when it comes up. What is measured is a start in a Ray that has been there."""


@contextlib.contextmanager
def own_ray() -> Iterator[None]:
    """A local Ray as a job starts it itself, but for the workers' output."""
    import ray

    from kafka_actors.ray.cluster import start_local_ray

    start_local_ray(log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


class Reports:
    """A directory where the workers of a job leave what they saw, one JSON file each."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def leave(self, report: Any) -> None:
        (Path(self.directory) / f"{uuid.uuid4()}.json").write_text(json.dumps(report))

    def all(self) -> list[Any]:
        return [json.loads(path.read_text()) for path in Path(self.directory).glob("*.json")]


class Summing:
    """A `process` class: every value byte into a checksum by partition, and when the first and last batch came."""

    def __init__(self, directory: str, partitions: list[int]) -> None:
        self._reports = Reports(directory)
        self._partitions = partitions
        self._check = Check(dict.fromkeys(partitions, (0, 0)))
        self._first = self._last = 0.0

    def __call__(self, batch: pa.RecordBatch) -> None:
        self._first = self._first or time.monotonic()
        fold(batch, self._check)
        self._last = time.monotonic()

    def close(self) -> None:
        found = {p: self._check.found(p) for p in self._partitions}
        found = {p: sums for p, sums in found.items() if sums[0]}
        self._reports.leave({"found": found, "first": self._first, "last": self._last})


def job_over(task: Task, process: Any, workers: int, **more: Any) -> Any:
    """A job over the task's topic, in a group of its own."""
    import kafka_actors as ka

    return ka.Job(
        topics=[task.topic],
        group_id=f"bench-{uuid.uuid4()}",
        bootstrap_servers=task.bootstrap,
        process=process,
        workers=workers,
        **more,
    )


def bounded_job(
    task: Task, workers: int, watch: Callable[[Any], None] | None = None
) -> tuple[float, list[dict[str, Any]]]:
    """One job over the whole topic. Returns when `start` was called, and the reports of its workers, checked."""
    with tempfile.TemporaryDirectory() as directory:

        class Bound(Summing):
            def __init__(self) -> None:
                super().__init__(directory, list(task.expected))

        job = job_over(task, Bound, workers, until="latest")
        began = time.monotonic()
        with job.start() as running:
            if watch is not None:
                watch(running)
            running.wait()
        reports = Reports(directory).all()
    verify(task, reports)
    return began, [report for report in reports if report["found"]]


def verify(task: Task, reports: list[dict[str, Any]]) -> None:
    """All records once: no partition by two workers, as there was no fault, and every checksum right."""
    found: dict[int, tuple[int, int]] = {}
    for report in reports:
        for partition, sums in report["found"].items():
            if int(partition) in found:
                raise SystemExit(
                    f"partition {partition} was worked on by two workers in a run without a fault"
                )
            found[int(partition)] = tuple(sums)
    if found != task.expected:
        raise SystemExit(f"read something else than was produced: {found}, expected {task.expected}")


def ended(running: Any, seconds: float) -> bool:
    """Whether the job has ended, waiting that long. Raises `JobFailed`."""
    from kafka_actors.errors import KafkaTimeoutError

    try:
        running.wait(timeout=seconds)
    except KafkaTimeoutError:
        return False
    return True


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    """Raises `SystemExit` where it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:.0f} s in vain")
        time.sleep(0.5)


# ---------------------------------------------------------------- throughput


def throughput(told: dict[str, Any]) -> Run:
    """Bounded jobs, one after the other, until the time of a run is over. The clock of each runs from the first call
    of its function to the end of the last; what was fetched before is at most what the workers' buffers hold."""
    task = Task.of(told)
    records, seconds, start_ups = 0, 0.0, list[float]()
    counts: list[Cpu] = []
    with own_ray():
        while seconds < task.seconds:
            counted = Cpu(task.broker_pid)
            began, reports = bounded_job(task, task.options["workers"], counted.watch)
            counts.append(counted)
            first = min(report["first"] for report in reports)
            records += task.total
            seconds += max(report["last"] for report in reports) - first
            start_ups.append(first - began)
    return {
        "records": records,
        "seconds": seconds,
        "rate": records / seconds,
        "start_up": statistics.median(start_ups),
        "cores": sum(c.job for c in counts) / sum(c.seconds for c in counts),
        "broker_cores": sum(c.broker for c in counts) / sum(c.seconds for c in counts),
    }


def pids_of_actors(running: Any) -> list[int]:
    """Processes of a job's actors."""
    return [pid for pid in running.status().actors.values() if pid is not None]


def cpu_of_actors(running: Any) -> float:
    """Seconds of CPU that a job's actors have taken, of which none may end meanwhile."""
    return sum(map(cpu_of, pids_of_actors(running)))


class Cpu:
    """Seconds of CPU of a job's actors with its driver, and of the broker, from when the workers are ready."""

    def __init__(self, broker_pid: int) -> None:
        self._broker_pid = broker_pid
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self.seconds = 0.0

    def watch(self, running: Any) -> None:
        """Looks twice a second, until the job has ended."""
        began = time.monotonic()
        over = False
        while not over:
            for pid in (os.getpid(), self._broker_pid, *pids_of_actors(running)):
                with contextlib.suppress(psutil.Error):
                    self._last[pid] = cpu_of(pid)
                    self._first.setdefault(pid, self._last[pid])
            self.seconds = time.monotonic() - began
            over = ended(running, 0.5)

    @property
    def broker(self) -> float:
        return self._last[self._broker_pid] - self._first[self._broker_pid]

    @property
    def job(self) -> float:
        return sum(self._last.values()) - sum(self._first.values()) - self.broker


# ---------------------------------------------------------------- start


def start(told: dict[str, Any]) -> Run:
    """`Job.start()` to the first record processed, with Ray up."""
    task = Task.of(told)
    with own_ray():
        time.sleep(RAY_SETTLES_S)
        began, reports = bounded_job(task, task.options["workers"])
    return {"first_record_s": min(report["first"] for report in reports) - began}


# ---------------------------------------------------------------- memory


def memory(told: dict[str, Any]) -> Run:
    """Peak of all our processes and the object store while a job reads the topic, in MB over what the same processes
    have when they only import; and that as a share of the limits which the job's options name."""
    import ray

    from kafka_actors.config import JobConfig

    task = Task.of(told)
    workers = task.options["workers"]
    limits_mb = workers * JobConfig().worker_buffer_bytes / 1e6
    with own_ray():
        bare = ray.remote(num_cpus=0)(Bare).remote()
        import_mb = ray.get(bare.megabytes.remote())
        ray.kill(bare)
        driver_mb = private_mb(os.getpid())
        peak = Peak()
        bounded_job(task, workers, peak.watch)
    imports_mb = driver_mb + peak.actors * import_mb
    return {
        "peak_mb": peak.mb,
        "imports_mb": imports_mb,
        "over_imports_mb": peak.mb - imports_mb,
        "shared_mb": peak.shared_mb,
        "limits_mb": limits_mb,
        "over_limits": (peak.mb - imports_mb) / limits_mb,
    }


class Bare:
    """An actor that has imported what ours import, and done nothing."""

    def megabytes(self) -> float:
        import benchmarks.our_jobs as imported
        import kafka_actors.ray.actors.connection_actor
        import kafka_actors.ray.actors.coordinator_actor
        import kafka_actors.ray.actors.worker_actor  # noqa: F401  for what it takes of memory

        return imported.private_mb(os.getpid())


def private_mb(pid: int) -> float:
    """Resident memory of a process without what it shares with others."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssFile")) * 1024 / 1e6


class SharedMemory:
    """What processes have together: Ray's object store, and what our actors receive into. Each file counts once, by what
    of it is in use."""

    def __init__(self) -> None:
        self._raylets = [p.pid for p in psutil.Process().children(recursive=True) if p.name() == "raylet"]
        if not self._mb(self._raylets, "/dev/shm/plasma"):
            raise SystemExit("the raylet has no object store open under /dev/shm")

    def mb(self, actors: Iterable[int]) -> float:
        """With what these processes receive into."""
        return self._mb(self._raylets, "/dev/shm/plasma") + self._mb(actors, "/memfd:kafka-actors")

    def _mb(self, pids: Iterable[int], name: str) -> float:
        files = {}
        for pid in pids:
            for file in descriptors(pid):
                with contextlib.suppress(OSError):
                    if os.readlink(file).startswith(name):
                        found = os.stat(file)
                        files[found.st_dev, found.st_ino] = found.st_blocks * 512
        return sum(files.values()) / 1e6


def descriptors(pid: int) -> list[Path]:
    """Of a process that may have ended."""
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []


class Peak:
    """The largest sum that was seen, twenty times a second."""

    def __init__(self) -> None:
        self._shared = SharedMemory()
        self._before_mb = self._shared.mb(())
        self.mb = self.shared_mb = 0.0
        self.actors = 0

    def watch(self, running: Any) -> None:
        over = False
        while not over:
            self.mb = max(self.mb, self.now(running))
            over = ended(running, SAMPLE_S)

    def now(self, running: Any) -> float:
        """Memory of a job's processes and the driver, and of what they share, in MB."""
        pids = pids_of_actors(running)
        self.actors = max(self.actors, len(pids))
        shared_mb = self._shared.mb(pids) - self._before_mb
        self.shared_mb = max(self.shared_mb, shared_mb)
        mb = shared_mb + private_mb(os.getpid())
        for pid in pids:
            with contextlib.suppress(OSError, KeyError):
                mb += private_mb(pid)
        return mb
