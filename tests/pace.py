"""The pace of this machine: how many times as long as on a quiet machine of the reference a fixed piece of work takes.

One process for a whole test run does that work four times a second and writes down how long it took. Promises in seconds and time
budgets of tests are multiplied by the pace of the moments in question: then a busy machine, or a slow one, breaks none.
"""

from __future__ import annotations

import bisect
import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REFERENCE_S = 0.005
"""The fixed piece of work takes so long on the reference: one of two cores that nobody else uses."""
EVERY_S = 0.25
VARIABLE = "PACE_OF_TESTS"
"""The environment variable with the file of the measurements; pytest-xdist's workers inherit it. None that begins with KAFKA_ACTORS_:
those are options of the command, which refuses what it does not know."""


def fixed_work() -> None:
    """Computes for about `REFERENCE_S`."""
    total = 0
    for number in range(112_500):
        total += number * number % 7


class Pace:
    """The measurements in `file`: lines of a CLOCK_MONOTONIC time, at which one ended, and the seconds that it took."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at: list[float] = []
        self._took: list[float] = []
        self._read = 0

    def between(self, since: float, until: float) -> float:
        """The mean pace from one `time.monotonic` to another; 1 where the machine was quicker, or nothing was measured."""
        self._catch_up()
        first = bisect.bisect_left(self._at, since)
        last = bisect.bisect_left(self._at, until) + 1  # the one that was under way at the end
        took = self._took[first:last]
        if not took and first and since - self._at[first - 1] < 8 * EVERY_S:
            took = self._took[first - 1 : first]  # it lies between two measurements
        return max(1.0, sum(took) / len(took) / REFERENCE_S) if took else 1.0

    def quiet_s(self, since: float, until: float) -> float:
        """The seconds from one `time.monotonic` to another as they would have been on the quiet machine: promises are held in these."""
        return (until - since) / self.between(since, until)

    def since(self, at: float) -> float:
        """The mean pace from that `time.monotonic` until now."""
        return self.between(at, time.monotonic())

    def _catch_up(self) -> None:
        try:
            with self._file.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except OSError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            at, took = line.split()
            self._at.append(float(at))
            self._took.append(float(took))


@functools.cache
def this_run() -> Pace:
    """The pace that the process of this test run measures."""
    return Pace(Path(os.environ[VARIABLE]))


class Measuring:
    """The process that measures, for the time of a test run. It ends with the process that started it."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="pace-")
        os.close(handle)
        self.file = Path(name)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.file)], stdin=subprocess.PIPE, start_new_session=True
        )
        os.environ[VARIABLE] = str(self.file)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self.file.unlink(missing_ok=True)


def measure(file: Path) -> None:
    """Measures again and again until standard input ends."""
    import select

    with file.open("a") as out:
        due = time.monotonic() + EVERY_S
        while not select.select([sys.stdin], [], [], EVERY_S)[0]:
            began = time.monotonic()
            fixed_work()
            ended = time.monotonic()
            # Where it woke late it stood still, as all others did: that counts for its share of the time between two measurements.
            late = max(0.0, began - due)
            out.write(f"{ended} {ended - began + late * REFERENCE_S / EVERY_S}\n")
            out.flush()
            due = time.monotonic() + EVERY_S


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
