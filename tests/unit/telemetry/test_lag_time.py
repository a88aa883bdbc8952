"""Lag in seconds, of ends that were seen now and then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.telemetry.machines.lag_time import LagTimes


def test_nothing_is_known_of_a_partition_that_was_not_seen():
    assert LagTimes().behind("p", 5, 10.0) is None


def test_at_the_end_there_is_no_lag():
    times = LagTimes()
    times.observe("p", 100, 0.0)
    assert times.behind("p", 100, 50.0) == 0
    assert times.behind("p", 101, 50.0) == 0


def test_between_two_looks_the_partition_grew_evenly():
    times = LagTimes()
    for second in range(11):
        times.observe("p", 1000 + 100 * second, float(second))
    assert times.behind("p", 1500, 10.0) == pytest.approx(5)
    assert times.behind("p", 1550, 10.0) == pytest.approx(4.5)
    assert times.behind("p", 1550, 12.0) == pytest.approx(6.5)


def test_lag_counts_from_the_end_of_a_rest_not_from_its_beginning():
    times = LagTimes()
    times.observe("p", 100, 0.0)
    for second in range(1, 61):
        times.observe("p", 100, float(second))
    times.observe("p", 110, 61.0)
    # It stood at 100 until second 60, when the records came that nobody has read.
    assert times.behind("p", 100, 62.0) == pytest.approx(2)


def test_what_lies_before_all_that_was_seen_is_reckoned_from_how_it_grew():
    times = LagTimes()
    times.observe("p", 1000, 0.0)
    times.observe("p", 1100, 10.0)
    assert times.behind("p", 900, 10.0) == pytest.approx(20)


def test_a_partition_that_does_not_grow_is_behind_for_as_long_as_it_was_seen():
    times = LagTimes()
    times.observe("p", 1000, 0.0)
    times.observe("p", 1000, 30.0)
    assert times.behind("p", 10, 30.0) == pytest.approx(30)


def test_a_partition_made_anew_begins_anew():
    times = LagTimes()
    times.observe("p", 1000, 0.0)
    times.observe("p", 3, 10.0)
    assert times.behind("p", 3, 11.0) == 0
    assert times.behind("p", 2, 11.0) == pytest.approx(1)
    times.forget("p")
    assert times.behind("p", 2, 11.0) is None


def test_memory_is_bounded_and_the_oldest_stay():
    times = LagTimes(samples=16)
    for second in range(10_000):
        times.observe("p", second * 10, float(second))
    line = times._seen["p"]
    assert len(line.times) <= 17
    assert line.times[0] == 0
    assert times.behind("p", 50_000, 9_999.0) == pytest.approx(4_999, rel=0.02)


@given(st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 50)), min_size=1, max_size=60), st.data())
def test_less_is_left_to_read_the_further_one_is(steps, data):
    times, now, end = LagTimes(samples=8), 0.0, 100
    for pause, grown in steps:
        now, end = now + pause, end + grown
        times.observe("p", end, now)
    positions = sorted(data.draw(st.lists(st.integers(0, end), min_size=2, max_size=6)))
    lags = [times.behind("p", position, now) for position in positions]
    assert lags == sorted(lags, reverse=True)
    assert times.behind("p", end, now) == 0


def test_the_end_that_was_seen_last_is_remembered_until_the_partition_is_anothers():
    times = LagTimes()
    assert times.end("t-0") is None
    for end in (10, 25, 5):  # made anew
        times.observe("t-0", end, float(end))
        assert times.end("t-0") == end
    times.forget("t-0")
    assert times.end("t-0") is None
