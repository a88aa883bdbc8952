"""Takes guards of the product out, one at a time; each has to make the test fail that is named for it: `make mutants`.

`mutants.toml` lists them: a name, the file, the text that is taken out and the one that takes its place, and the test. Files of the kernel are
compiled anew for each. The tests run in copies of the sources, so that the work tree stays as it is. `python tests/mutants.py NAME …` tries
only those whose names begin so. The exit status is 1 when a mutant survives, or when a named test fails without any.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
KERNEL = (
    "kafka_actors/records/_kernel.pyx",
    "kafka_actors/records/_small.pxi",
    "kafka_actors/records/_frames.pxi",
    "kafka_actors/records/_encode.pxi",
    "kafka_actors/fetch/_fetch_loop.pyx",
    "kafka_actors/schemas/_columns.pxi",
    "kafka_actors/schemas/_avro_program.pxi",
    "kafka_actors/schemas/_columns_read.pxi",
    "kafka_actors/schemas/_avro_encoder_kernel.pyx",
    "kafka_actors/schemas/_avro_kernel.pyx",
    "kafka_actors/schemas/_protobuf_kernel.pyx",
    "kafka_actors/schemas/_protobuf_encoder_kernel.pyx",
)
COPIED = ("kafka_actors", "assignors", "tests", "docs", "examples", "pyproject.toml", "setup.py", "README.md")
HANGS_AFTER_S = 120
BUILDS_WITHIN_S = 600
PAGE_HEAD = """# Promises and what holds them

README makes seven promises. Each guard of the product that keeps one has been taken out (a mutant), and the test beside it failed:
`make mutants` does that again for all of them. The names are those of `tests/mutants.toml`, which says for each what is taken out and where.
What needs real brokers, Ray or Spark is held by `tests/integration` too: kills, pauses and moves of workers, coordinators and brokers
(`tests/integration/test_job_kills.py`, `tests/integration/test_job_freezes.py`, `tests/integration/test_consumer_faults.py`,
`tests/integration/test_producer_faults.py`), recreated and truncated topics (`tests/integration/test_recreated_topics.py`), and the time
that starts and stops take (`tests/integration/test_time_limits.py`, `tests/integration/test_job_stop.py`).

`python tests/mutants.py --page > docs/development/promises.md` makes this page.
"""


@dataclass(frozen=True)
class Mutant:
    """One change of the product that a test has to notice."""

    name: str
    file: str
    old: str
    """Text that stands once in the file."""
    new: str
    test: str
    """Node id of a test, without parameters: it has to fail."""
    promise: int = 0
    """The number of the promise in README's list that the guard keeps; 0 for none of them."""

    def changed(self, text: str) -> str:
        """Returns the file's text with the change; raises `ValueError` where `old` does not stand there once."""
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: what is to be taken out stands {found} times in {self.file}")
        return text.replace(self.old, self.new)


def listed(path: Path = LIST) -> tuple[Mutant, ...]:
    """Reads the mutants of a file; raises `TypeError` for an unknown or missing key."""
    return tuple(Mutant(**entry) for entry in tomllib.loads(path.read_text())["mutant"])


class Copy:
    """A copy of the sources in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        skip = shutil.ignore_patterns("__pycache__", "*.c")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=skip)
            else:
                shutil.copy2(source, folder / name)
        compiled = ["compileall", "-q", "--invalidation-mode", "checked-hash", "kafka_actors", "tests"]
        # Valid by the text of a source: a mutant may be as old and as long as what it takes the place of.
        self._run([sys.executable, "-m", *compiled], BUILDS_WITHIN_S)

    def outcome(self, mutant: Mutant) -> str:
        """Tries one: "killed", or a line that says why it was not."""
        path = self._folder / mutant.file
        before = path.read_text()
        path.write_text(mutant.changed(before))
        try:
            if mutant.file in KERNEL:
                return self._with_kernel(mutant)
            return self._verdict([mutant.test])
        finally:
            path.write_text(before)

    def failed(self, tests: Sequence[str]) -> str:
        """Runs tests on the sources as they are in this copy; returns the end of the log if they fail, else nothing."""
        run = self._pytest(tests)
        return "" if run.returncode == 0 else run.stdout[-3000:]

    def _with_kernel(self, mutant: Mutant) -> str:
        libraries = {path: path.read_bytes() for path in (self._folder / "kafka_actors").glob("*/*.so")}
        try:
            command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
            build = self._run(command, BUILDS_WITHIN_S)
            if build is None or build.returncode or "_kernel" not in str(list(libraries)):
                return "SURVIVED: the kernel was not compiled"
            return self._verdict([mutant.test])
        finally:
            for path, content in libraries.items():
                path.unlink(missing_ok=True)  # a library that is loaded somewhere keeps its bytes
                path.write_bytes(content)

    def _verdict(self, tests: Sequence[str]) -> str:
        run = self._pytest(tests)
        if run.returncode < 0:
            return "killed"  # by a crash of the test's process: the kernel read what was not its own
        if run.returncode == 1 and re.search(r"^FAILED ", run.stdout, re.MULTILINE):
            return "SURVIVED: the test ran into its time limit" if "Timeout (>" in run.stdout else "killed"
        return "SURVIVED" if run.returncode == 0 else f"SURVIVED: the test did not run: {run.stdout[-500:]}"

    def _pytest(self, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
        options = [
            "-n0",
            "-x",
            "-q",
            "--no-header",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "--timeout",
            str(HANGS_AFTER_S),
        ]
        run = self._run([sys.executable, "-m", "pytest", *options, *tests], 10 * HANGS_AFTER_S)
        return run or subprocess.CompletedProcess([], 1, "FAILED Timeout (>", "")

    def _run(self, command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str] | None:
        """Runs a command in the copy, whose modules come first; None if it does not end in time."""
        try:
            return subprocess.run(
                command,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return None


def promises() -> list[tuple[int, str]]:
    """Returns number and name of each promise in README's section of them."""
    section = (ROOT / "README.md").read_text().partition("## What it promises")[2].partition("\n## ")[0]
    return [(int(n), name) for n, name in re.findall(r"^(\d+)\. \[\*\*(.+?)\.?\*\*\]", section, re.MULTILINE)]


def page() -> str:
    """Returns the page on README's promises: for each the guards that keep it, and the tests that fail without them."""
    lines = [PAGE_HEAD]
    for number, promise in promises():
        lines += [
            f"## {number}. {promise}",
            "",
            "| without this guard (mutant) | this test fails |",
            "|---|---|",
        ]
        lines += [
            f"| `{each.name}` | `{each.test.partition('::')[0]}` {each.test.partition('::')[2]} |"
            for each in listed()
            if each.promise == number
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--page", action="store_true", help="print the page on README's promises, and try nothing"
    )
    given = parser.parse_args()
    if given.page:
        print(page(), end="")
        return 0
    mutants = [each for each in listed() if not given.names or each.name.startswith(tuple(given.names))]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-actors-mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(given.processes):
            copies.put(Copy(Path(folder) / str(number)))

        def outcome(mutant: Mutant) -> str:
            copy = copies.get()
            try:
                return copy.outcome(mutant)
            finally:
                copies.put(copy)

        copy = copies.get()
        if why := copy.failed(sorted({each.test for each in mutants})):
            print(f"a test fails without any mutant:\n{why}")
            return 1
        copies.put(copy)
        survivors = 0
        with ThreadPoolExecutor(given.processes) as pool:
            for mutant, what in zip(mutants, pool.map(outcome, mutants), strict=True):
                survivors += what != "killed"
                print(f"{what:<9} {mutant.name:<44} {mutant.test.rpartition('::')[2]}", flush=True)
    rooms = Counter(each.file.rpartition("/")[0] for each in mutants)
    print(
        f"{len(mutants)} mutants of {len(rooms)} directories in {time.monotonic() - began:.0f} s: {survivors} survived"
    )
    return survivors > 0


if __name__ == "__main__":
    sys.exit(main())
