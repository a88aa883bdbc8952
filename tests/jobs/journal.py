"""Journal of the workers of a job under test: one line per call of `process`, in a file per process.

A line is written with one `write` to a file opened for appending, so it survives SIGKILL right after the call.
Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from atomic_files import write_atomically
from pace import this_run

from kafka_actors.types import TopicPartition


@dataclass(frozen=True)
class Entry:
    """One call: when it began, who made it, and the offsets it was given."""

    at: float
    pid: int
    partition: TopicPartition
    offsets: tuple[int, ...]


class Recorder:
    """A `process` class that keeps a journal. `make` seconds in the constructor, `work` seconds in each call, of
    which the line is written at the beginning; or, with `late`, at the end, when the records are processed. The constructor waits until
    there are so many `workers`: those that are up three seconds before the others get all partitions, and may be done with them by then."""

    def __init__(
        self, directory: str, make: float = 0.0, work: float = 0.0, late: bool = False, workers: int = 1
    ) -> None:
        time.sleep(make)
        self._work = work
        self._late = late
        self._hold = os.path.join(directory, "hold")
        self._file = os.open(
            os.path.join(directory, f"{os.getpid()}.jsonl"), os.O_CREAT | os.O_APPEND | os.O_WRONLY
        )
        while len(list(Path(directory).glob("*.jsonl"))) < workers:
            time.sleep(0.05)

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self._hold and os.path.exists(self._hold):
            self._keep_the_gil()
        if self._late:
            time.sleep(self._work)
        line = {
            "at": time.monotonic(),
            "pid": os.getpid(),
            "topic": batch["topic"][0].as_py(),
            "partition": batch["partition"][0].as_py(),
            "offsets": runs(batch["offset"].to_pylist()),
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if self._work and not self._late:
            time.sleep(self._work)

    def _keep_the_gil(self) -> None:
        """Once, as native code does that never lets go of it."""
        with open(self._hold) as file:
            seconds = float(file.read())
        with open(os.path.join(os.path.dirname(self._hold), f"{os.getpid()}.held"), "w"):
            self._hold = ""
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def runs(offsets: list[int]) -> list[list[int]]:
    """[first, last] of each stretch of successive offsets."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def complete_lines(path: Path) -> list[bytes]:
    """Returns the lines of a file that somebody may still write: one `write` is not one step for who reads beside it, so the end of a line
    may be missing."""
    return path.read_bytes().split(b"\n")[:-1]


class Journal:
    """Reads what the recorders of one job wrote."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def hold(self, seconds: float) -> float:
        """Each recorder is to keep the GIL of its process for so long, once. Returns when that was said."""
        write_atomically(self.directory / "hold", str(seconds))
        return time.monotonic()

    def held(self) -> int:
        """Number of calls that hold the GIL, or did so."""
        return len(list(self.directory.glob("*.held")))

    def entries(self) -> list[Entry]:
        found = []
        for path in self.directory.glob("*.jsonl"):
            found += [_entry(json.loads(line)) for line in complete_lines(path)]
        return sorted(found, key=lambda e: e.at)

    def counts(self) -> dict[TopicPartition, Counter[int]]:
        """Counts of each offset's hand-overs to `process`."""
        counted: dict[TopicPartition, Counter[int]] = defaultdict(Counter)
        for entry in self.entries():
            counted[entry.partition].update(entry.offsets)
        return counted

    def records(self) -> int:
        return sum(len(e.offsets) for e in self.entries())

    def distinct(self) -> int:
        return sum(len(c) for c in self.counts().values())

    def duplicates(self) -> dict[TopicPartition, int]:
        return {p: n for p, c in self.counts().items() if (n := sum(times - 1 for times in c.values()))}

    def missing(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, list[int]]:
        """Offsets below the ends that `process` never saw."""
        counts = self.counts()
        gaps = {p: [o for o in range(end) if o not in counts.get(p, {})] for p, end in ends.items()}
        return {p: g for p, g in gaps.items() if g}

    def first_after(
        self, at: float, partitions: Iterable[TopicPartition], pids: set[int]
    ) -> dict[TopicPartition, float]:
        """For each partition, seconds from `at` to the first call made by one of these processes."""
        found: dict[TopicPartition, float] = {}
        wanted = set(partitions)
        for entry in self.entries():
            if entry.at >= at and entry.partition in wanted and entry.pid in pids:
                found.setdefault(entry.partition, entry.at - at)
        return found

    def longest_pause(self, partition: TopicPartition, since: float, until: float) -> float:
        """The longest time without a call for one partition, in seconds of a quiet machine: see `pace`."""
        times = [
            since,
            *(e.at for e in self.entries() if e.partition == partition and since <= e.at <= until),
            until,
        ]
        return max(this_run().quiet_s(a, b) for a, b in itertools.pairwise(times))


class Ledger:
    """Follows the journal of a long run: each call reads only what was written since the last one."""

    def __init__(self, journal: Journal) -> None:
        self._directory = journal.directory
        self._read: dict[Path, int] = {}
        self._ahead: dict[TopicPartition, set[int]] = defaultdict(set)
        self._ends: dict[TopicPartition, int] = defaultdict(int)

    def processed_ends(self) -> dict[TopicPartition, int]:
        """For each partition, the first offset that no worker has processed yet."""
        for path in self._directory.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if line.endswith(b"\n"):
                        self._read[path] = self._read.get(path, 0) + len(line)
                        entry = _entry(json.loads(line))
                        self._ahead[entry.partition].update(entry.offsets)
        for partition, ahead in self._ahead.items():
            end = self._ends[partition]
            while end in ahead:
                end += 1
            self._ends[partition] = end
            self._ahead[partition] = {offset for offset in ahead if offset > end}
        return self._ends


def _entry(line: dict[str, object]) -> Entry:
    offsets = tuple(o for first, last in line["offsets"] for o in range(first, last + 1))  # type: ignore[attr-defined]
    return Entry(line["at"], line["pid"], TopicPartition(line["topic"], line["partition"]), offsets)  # type: ignore[arg-type]
