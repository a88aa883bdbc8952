"""A pytest plugin: groups of tests that share what takes long to start: pytest-xdist runs a group in one process, one test after the other.

What a session starts (Ray, three brokers, Spark's Java) is there once in each group that needs it. All other files are groups of their
own. Groups that take longest come first, so that a run doesn't end with one process at work.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from time_budgets import BUDGETS, Budgets, below_tests

RAY_GROUPS = 2
"""So many processes have a Ray and three brokers: in one, those tests would take longer than all others together."""


def _needs(item: pytest.Item) -> str:
    """The service that the test needs: `ray`, `spark`, or none."""
    if item.get_closest_marker("spark"):
        return "spark"
    return "ray" if {"ray_local", "_three_brokers"} & set(getattr(item, "fixturenames", ())) else ""


def group_tests(items: list[pytest.Item], budgets: Budgets) -> None:
    """Marks each test with its group, and orders them: the longest groups first, within a group the longest files, and within a file as
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
    for group, tests in groups.items():
        for item in tests:
            item.add_marker(pytest.mark.xdist_group(group))
    longest_first = sorted(groups, key=lambda name: (-seconds[name], name))
    items[:] = [item for group in longest_first for item in groups[group]]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if getattr(config.option, "loadgroup", False):  # set in the processes of `pytest -n … --dist loadgroup`
        group_tests(items, Budgets.read(BUDGETS))
