"""A pytest plugin: time budgets of test files, and the slowest tests, printed at the end of each run.

A file's time is the sum of the set-up, call and tear-down of its tests, without fixtures of the session (a broker, Ray, Spark: whoever
comes first would pay for all) and without tests marked `slow`. Budgets stand in `time_budgets.toml`. A run in which a file takes clearly
longer than its budget fails.

Budgets are seconds at the pace of a machine that runs these tests and nothing else. A busy or slow machine stretches them: see `pace`.
"""

from __future__ import annotations

import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pace import Measuring, this_run

TESTS = Path(__file__).parent
BUDGETS = TESTS / "time_budgets.toml"
SLOWEST = 30
"""Number of the slowest tests that are listed."""
MARGIN, SLACK_S = 2.0, 10.0
"""A file is over its budget where it takes this factor, and so many seconds, more."""


@dataclass(frozen=True)
class Budgets:
    """Seconds for each test file: its own, or those of the nearest directory that has some."""

    seconds: Mapping[str, float]

    @classmethod
    def read(cls, path: Path) -> Budgets:
        """Raises `ValueError` for a path in it that doesn't exist: budgets of files that are gone."""
        seconds = tomllib.loads(path.read_text())["seconds"]
        if gone := [name for name in seconds if not (path.parent / name).exists()]:
            raise ValueError(f"{path.name}: no such files or directories: {', '.join(gone)}")
        return cls(seconds)

    def of(self, file: str) -> float:
        """The budget of `file`, a path below tests/; no limit where neither it nor a directory above has one."""
        for path in (file, *map(str, Path(file).parents)):
            if path in self.seconds:
                return self.seconds[path]
        return float("inf")


@dataclass
class FileTime:
    """Seconds that one file took, and would have taken at the reference pace."""

    seconds: float = 0.0
    at_reference: float = 0.0

    @property
    def pace(self) -> float:
        return self.seconds / self.at_reference if self.at_reference else 1.0

    def add(self, seconds: float, pace: float) -> None:
        self.seconds += seconds
        self.at_reference += seconds / pace

    def over(self, budget: float) -> bool:
        """Whether the file clearly took more than `budget` seconds at the reference pace."""
        return self.at_reference > budget * MARGIN + SLACK_S


class Stopwatch:
    """Adds to each report, in the process that runs the test, the time of session fixtures in it (`shared_s`) and the pace of
    the machine meanwhile (`pace`)."""

    def __init__(self) -> None:
        self._shared_s = 0.0
        self._depth = 0
        self._pace = this_run()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope != "session":
            return (yield)
        began = time.perf_counter()
        self._depth += 1
        try:
            return (yield)
        finally:
            self._depth -= 1
            if not self._depth:
                self._shared_s += time.perf_counter() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        report.shared_s, self._shared_s = self._shared_s, 0.0
        report.pace = self._pace.since(time.monotonic() - report.duration)
        return report


def below_tests(path: str | Path) -> str:
    """The path of a test file below tests/."""
    path = Path(path)
    return str(path.relative_to(TESTS) if path.is_relative_to(TESTS) else path.relative_to("tests"))


def without_group(nodeid: str) -> str:
    """The id of a test without the group that pytest-xdist puts behind it, as in `…::test_it@ray`."""
    at = nodeid.rfind("@")
    return nodeid[:at] if at > nodeid.rfind("]") else nodeid


class Ledger:
    """Sums up the reports, in the process that prints the summary."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._files: dict[str, FileTime] = defaultdict(FileTime)
        self._tests: dict[str, float] = defaultdict(float)
        self._shared_s = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = below_tests(report.fspath)
        shared_s = getattr(report, "shared_s", 0.0)
        seconds = report.duration - shared_s
        self._shared_s += shared_s
        self._tests[without_group(report.nodeid)] += seconds
        if "slow" in report.keywords:
            return
        self._files[file].add(seconds, getattr(report, "pace", 1.0))

    def over(self) -> list[str]:
        """The files over their budgets, each with its figures."""
        return [
            f"{file}: {known.seconds:.1f} s, budget {self._budgets.of(file):g} s, pace {known.pace:.1f}"
            for file, known in sorted(self._files.items())
            if known.over(self._budgets.of(file))
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        files = sorted(self._files.items(), key=lambda entry: -entry[1].seconds)
        if not files:
            return
        terminalreporter.section("time of test files: seconds, budget, pace")
        for file, known in files:
            if known.seconds >= 1:
                write(f"{known.seconds:8.1f} {self._budgets.of(file):7g} {known.pace:5.1f}  {file}")
        total = sum(known.seconds for known in self._files.values())
        write(f"{total:8.1f} in all, and {self._shared_s:.1f} for fixtures of the session")
        terminalreporter.section(f"slowest {SLOWEST} tests")
        for name, seconds in sorted(self._tests.items(), key=lambda entry: -entry[1])[:SLOWEST]:
            write(f"{seconds:8.1f}  {name}")
        if over := self.over():
            terminalreporter.section("over their time budgets", red=True)
            for line in over:
                write(line, red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # of pytest-xdist: a worker prints nothing
        measuring = Measuring()
        config.add_cleanup(measuring.close)
        ledger = Ledger(Budgets.read(BUDGETS))
        config.pluginmanager.register(ledger, "ledger of test files")
    config.pluginmanager.register(Stopwatch(), "stopwatch of test files")
