"""What every reading client is measured by, in its own process: the task, the check of what was read, and the clock."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import crc32c
import psutil

Run = dict[str, Any]
MAX_SILENCE_S = 60.0


@dataclass
class Task:
    """What to read: `expected` is (records, CRC-32C of all values in order) by partition. `broker_pid`, to see what
    the broker's share of the CPU is. `at_once`: how many messages confluent-kafka's `consume` is asked for."""

    bootstrap: str
    topic: str
    expected: dict[int, tuple[int, int]]
    seconds: float
    broker_pid: int
    at_once: int = 10_000
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Task:
        """From JSON, whose keys are text."""
        return cls(**{**told, "expected": {int(p): tuple(e) for p, e in told["expected"].items()}})

    def of_all(self, partitions: int) -> Task:
        """The same topic, nothing expected of its partitions, for a client at its defaults."""
        return replace(self, expected=dict.fromkeys(range(partitions), (0, 0)), options={})

    @property
    def total(self) -> int:
        return sum(count for count, _ in self.expected.values())


class Check:
    """Counts and checksums of one pass over the topic, or over those of its partitions that are given."""

    def __init__(self, expected: dict[int, tuple[int, int]]) -> None:
        self._expected = expected
        self._total = sum(count for count, _ in expected.values())
        self._sums = dict.fromkeys(expected, 0)
        self._counts = dict.fromkeys(expected, 0)
        self.records = 0
        self._heard = time.monotonic()

    def add(self, partition: int, count: int, values: bytes | memoryview) -> None:
        self._sums[partition] = crc32c.crc32c(values, self._sums[partition])
        self._counts[partition] += count
        self.records += count
        self._heard = time.monotonic()

    @property
    def left(self) -> int:
        """Records still to come."""
        return self._total - self.records

    @property
    def complete(self) -> bool:
        """Whether all is there. Raises `SystemExit` when nothing came for a minute."""
        if self.records < self._total and time.monotonic() - self._heard > MAX_SILENCE_S:
            raise SystemExit(f"{self.records} of {self._total} records came, then none for a minute")
        return self.records >= self._total

    def found(self, partition: int) -> tuple[int, int]:
        """(records, CRC-32C of all values) so far."""
        return self._counts[partition], self._sums[partition]

    def verify(self) -> None:
        found = {p: self.found(p) for p in self._expected}
        if found != self._expected:
            raise SystemExit(f"read something else than was produced: {found}, expected {self._expected}")


@dataclass
class Result:
    """One run. CPU in seconds of the client's process and of the broker's, `start_up` from the client's construction to
    its first records, `rss_mb` at the end."""

    records: int
    seconds: float
    start_up: float
    cpu: float
    broker_cpu: float
    rss_mb: float

    def as_run(self) -> Run:
        return {**asdict(self), "rate": self.records / self.seconds}


class Clock:
    """Runs from the first poll after an assignment to the last record of a pass, pass after pass until the time of a
    run is over. Each pass has a client of its own: a seek would first wait for a long poll at the end of the log."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seconds = self._cpu = self._broker_cpu = self._start_up = 0.0
        self._began = self._cpu_began = self._broker_began = self._made = 0.0
        self._records = 0

    def making(self) -> None:
        """A client is about to be made."""
        self._made = time.perf_counter()

    def start(self) -> None:
        """The assignment is made, the first poll comes next."""
        self._broker_began = cpu_of(self._task.broker_pid)
        self._cpu_began = time.process_time()
        self._began = time.perf_counter()

    def first(self) -> None:
        """Records have come; counts the first time."""
        self._start_up = self._start_up or time.perf_counter() - self._made

    def passed(self, records: int) -> bool:
        """The last record of a pass is read; whether another pass is to begin."""
        self._seconds += time.perf_counter() - self._began
        self._cpu += time.process_time() - self._cpu_began
        self._broker_cpu += cpu_of(self._task.broker_pid) - self._broker_began
        self._records += records
        return self._seconds < self._task.seconds

    def run(self) -> Run:
        rss = psutil.Process().memory_info().rss / 1e6
        return Result(self._records, self._seconds, self._start_up, self._cpu, self._broker_cpu, rss).as_run()


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def value_bytes(column: Any) -> memoryview:
    """All bytes of an Arrow binary column, in place."""
    _, offsets, data = column.buffers()
    bounds = memoryview(offsets).cast("i")
    return memoryview(data)[bounds[column.offset] : bounds[column.offset + len(column)]]
