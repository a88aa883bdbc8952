"""Rates of the last seconds."""

from __future__ import annotations

from kafka_actors.base.rates import Window, known_sum, rate


def test_the_first_sample_is_compared_with_itself() -> None:
    assert Window[int]().add(7, 100.0) == (7, 0.0)


def test_a_window_compares_with_what_is_as_old_as_itself() -> None:
    window: Window[int] = Window(5)
    compared = [window.add(second, float(second)) for second in range(9)]
    assert compared == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 5), (2, 5), (3, 5)]


def test_after_a_pause_it_compares_with_the_sample_before() -> None:
    window: Window[str] = Window(5)
    for now, sample in enumerate("abc"):
        window.add(sample, now)
    assert window.add("d", 60.0) == ("c", 58.0)


def test_a_window_remembers_no_more_than_its_seconds() -> None:
    window: Window[int] = Window(5)
    for tick in range(10_000):
        window.add(tick, tick / 4)
    assert len(window) <= 5 * 4 + 2


def test_a_rate_is_never_negative_and_none_over_no_time() -> None:
    assert rate(30, 10, 4) == 5.0
    assert rate(10, 30, 4) == 0.0
    assert rate(30, 10, 0) == 0.0


def test_a_sum_is_of_what_is_known() -> None:
    assert known_sum([None, 3, 4]) == 7
    assert known_sum([0]) == 0
    assert known_sum([None]) is None
    assert known_sum([]) is None
