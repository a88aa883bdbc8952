"""A pytest plugin: groups of tests that share what takes long to start: pytest-xdist runs a group in one process, one test after the other.

What a session starts (Ray, three brokers, Spark's Java) is there once in each group that needs it. All other files are groups of their
own. Groups that take longest come first, so that a run doesn't end with one process at work.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from time_budgets import BUDGETS, Budgets, below_tests, without_group
from xdist.scheduler import LoadScopeScheduling

VARIABLE = "GROUPS_OF_TESTS"
"""The environment variable with the file in which the processes of a run write down the groups, for the one that gives them tests."""

RAY_GROUPS = 2
"""Number of processes with a Ray and three brokers: in one, those tests would take longer than all others together."""


def _needs(item: pytest.Item) -> str:
    """The service that the test needs: `ray`, `spark`, or none."""
    if item.get_closest_marker("spark"):
        return "spark"
    return "ray" if {"ray_local", "_three_brokers"} & set(getattr(item, "fixturenames", ())) else ""


def group_tests(items: list[pytest.Item], budgets: Budgets) -> dict[pytest.Item, str]:
    """Returns the group of each test, and orders them: the longest groups first, within a group the longest files, and within a file as
    they stand in it."""
    files: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[_needs(item), below_tests(item.path)].append(item)
    seconds = {f"ray-{number}": 0.0 for number in range(RAY_GROUPS)}
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for (need, file), tests in sorted(files.items(), key=lambda entry: (-budgets.of(entry[0][1]), entry[0])):
        with_ray = [name for name in seconds if name.startswith("ray-")]
        group = min(with_ray, key=lambda name: seconds[name]) if need == "ray" else need or file
        seconds[group] = seconds.get(group, 0.0) + budgets.of(file)
        groups[group] += tests
    longest_first = sorted(groups, key=lambda name: (-seconds[name], name))
    items[:] = [item for group in longest_first for item in groups[group]]
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
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({without_group(item.nodeid): groups[item] for item in items}))
        draft.rename(file)
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    return GroupScheduling(config, log, Path(os.environ[VARIABLE]))
