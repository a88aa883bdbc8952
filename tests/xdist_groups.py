"""A pytest plugin: groups of tests that share what takes long to start: pytest-xdist runs a group in one process, one test after the other.

What a session starts (Ray, three brokers, Spark's Java, the broker with TLS and SASL) is there once in each group that needs it. All other files are groups of their
own. Groups that take longest come first, so that a run doesn't end with one process at work.

Three brokers and their controller cost an eighth of a core though nobody talks to them (12.7 % on 2026-11-23, 4.1.1), and that as long as
their process runs. So one group of those with Ray has all tests that need both, and in each group these tests come last.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atomic_files import write_atomically
from time_budgets import BUDGETS, Budgets, below_tests, without_group
from xdist.scheduler import LoadScopeScheduling

VARIABLE = "GROUPS_OF_TESTS"
"""The environment variable with the file in which the processes of a run write down the groups, for the one that gives them tests."""

RAY_GROUPS = 2
"""Number of processes with a Ray: in one, those tests would take more than a third of all time, and a run would end with them alone."""


def _on_three_brokers(item: pytest.Item) -> bool:
    return "_three_brokers" in getattr(item, "fixturenames", ())


def _needs(item: pytest.Item) -> str:
    """The group that the test shares with others: `spark`, `ray` (also of those on three brokers alone), `secure`, or none."""
    if item.get_closest_marker("spark"):
        return "spark"
    fixtures = getattr(item, "fixturenames", ())
    if _on_three_brokers(item) or "ray_local" in fixtures:
        return "ray"
    return "secure" if "secure" in fixtures else ""


def group_tests(items: list[pytest.Item], budgets: Budgets) -> dict[pytest.Item, str]:
    """Returns the group of each test, and orders them: the longest groups first, within a group the longest files, those on three brokers
    behind all others, and within a file as they stand in it."""
    files: dict[tuple[bool, str, str], list[pytest.Item]] = defaultdict(list)
    number: Counter[str] = Counter()
    for item in items:
        file = below_tests(item.path)
        files[_on_three_brokers(item), _needs(item), file].append(item)
        number[file] += 1

    def share_s(file: str, tests: list[pytest.Item]) -> float:
        return budgets.of(file) * len(tests) / number[file]

    with_ray = [f"ray-{n}" for n in range(RAY_GROUPS)]
    seconds = dict.fromkeys(with_ray, 0.0)
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    # Those on three brokers are given out first, so that the other groups with Ray get the more of the rest.
    for (three, need, file), tests in sorted(
        files.items(), key=lambda entry: (not entry[0][0], -share_s(entry[0][2], entry[1]), entry[0])
    ):
        group = need or file
        if need == "ray":
            group = with_ray[-1] if three else min(with_ray, key=lambda name: seconds[name])
        seconds[group] = seconds.get(group, 0.0) + share_s(file, tests)
        groups[group] += tests
    longest_first = sorted(groups, key=lambda name: (-seconds[name], name))
    items[:] = [item for group in longest_first for item in sorted(groups[group], key=_on_three_brokers)]
    return {item: group for group, tests in groups.items() for item in tests}


class GroupScheduling(LoadScopeScheduling):
    """Gives each process of pytest-xdist whole groups, in the order of the tests. Its own `loadgroup` writes groups into ids of tests, where
    pytest 9.2 has no place for them."""

    def __init__(self, config: pytest.Config, log: Any, groups: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._file = groups
        self._groups: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        if not self._groups:  # every process has written the same, and then said what it has collected
            self._groups = json.loads(self._file.read_text())
        return self._groups[without_group(nodeid)]


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "dist", "no") == "loadgroup":
        directory = tempfile.TemporaryDirectory(prefix="groups-")
        config.add_cleanup(directory.cleanup)
        os.environ[VARIABLE] = str(Path(directory.name, "groups.json"))


@pytest.hookimpl(wrapper=True)  # when others have sorted out which tests there are
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    result = yield
    if getattr(config.option, "loadgroup", False):  # set in the processes of `pytest -n … --dist loadgroup`
        groups = group_tests(items, Budgets.read(BUDGETS))
        file = Path(os.environ[VARIABLE])
        write_atomically(file, json.dumps({without_group(item.nodeid): groups[item] for item in items}))
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    return GroupScheduling(config, log, Path(os.environ[VARIABLE]))
