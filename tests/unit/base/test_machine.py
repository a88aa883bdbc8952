"""`Ready` and `earliest`: the results of a machine's poll."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from kafka_actors.base.machine import Ready, earliest


def test_what_is_ready_is_nothing_by_default_and_does_not_change():
    ready = Ready()
    assert (ready.actions, ready.events, ready.next_wake) == ((), (), None)
    with pytest.raises(AttributeError):
        ready.next_wake = 1.0


def test_the_earliest_of_several_times_passes_over_those_that_there_are_not():
    assert earliest([None, 3.0, 2.0, None]) == 2.0
    assert earliest([None]) is None
    assert earliest(time for time in (0.0, 1.0)) == 0.0


def test_the_page_of_machines_shows_what_a_shell_shows():
    page = Path(__file__).parents[3] / "docs" / "development" / "machines.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 20
    assert failed == 0
