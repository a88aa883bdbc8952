"""Pauses between tries."""

from __future__ import annotations

import pytest

from kafka_actors.base.backoff import Backoff, RetryTimer, exponential_backoff
from kafka_actors.errors import ConfigError


def test_pauses_double_up_to_the_maximum() -> None:
    pauses = [exponential_backoff(n, 0.05, 1.0, lambda: 0.5) for n in range(8)]
    assert pauses == pytest.approx([0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_is_a_fifth_either_way() -> None:
    assert exponential_backoff(1, 1.0, 1.0, lambda: 0.0) == pytest.approx(0.8)
    assert exponential_backoff(1, 1.0, 1.0, lambda: 1.0) == pytest.approx(1.2)


def test_thousands_of_failures_do_not_overflow() -> None:
    assert exponential_backoff(10**6, 0.05, 1.0, lambda: 0.5) == pytest.approx(1.0)


def test_an_initial_pause_above_the_maximum_is_the_maximum() -> None:
    assert [exponential_backoff(n, 2.0, 1.0) for n in (1, 2, 3)] == [1.0, 1.0, 1.0]


def test_without_randomness_there_is_no_jitter() -> None:
    assert [exponential_backoff(n, 0.1, 2.0) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]


def test_remaining_counts_down_and_success_ends_it() -> None:
    backoff = RetryTimer(0.1, 1.0, lambda: 0.5)
    assert backoff.remaining(0.0) == 0.0
    assert backoff.failed(10.0) == pytest.approx(0.1)
    assert backoff.failed(10.0) == pytest.approx(0.2)
    assert backoff.remaining(10.05) == pytest.approx(0.15)
    assert backoff.remaining(11.0) == 0.0
    backoff.succeeded()
    assert backoff.remaining(10.0) == 0.0
    assert backoff.failed(10.0) == pytest.approx(0.1)


def test_no_backoff_configured_is_no_pause() -> None:
    backoff = RetryTimer(0.0, 0.0, lambda: 0.5)
    assert backoff.failed(1.0) == 0.0
    assert backoff.remaining(1.0) == 0.0


def test_waits_of_a_backoff_grow_by_its_multiplier_up_to_its_maximum() -> None:
    backoff = Backoff(initial_ms=1_000, max_ms=20_000, multiplier=3)
    assert [backoff.wait_s(n, lambda: 0.5) for n in range(5)] == pytest.approx([0, 1, 3, 9, 20])
    assert backoff.longest_s(4) == pytest.approx(33)


def test_the_default_backoff_is_what_calls_wait_without_one() -> None:
    waits = [Backoff().wait_s(n, lambda: 0.0) for n in range(1, 7)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0])


def test_jitter_of_a_backoff_is_its_share_either_way() -> None:
    backoff = Backoff(initial_ms=1_000, max_ms=1_000, jitter=0.5)
    assert [backoff.wait_s(1, lambda n=n: n) for n in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 1.0, 1.5])
    assert backoff.longest_s(2) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"initial_ms": 0}, "retry_backoff: initial_ms is 0: accepts more than 0"),
        ({"initial_ms": 50, "max_ms": 20}, "retry_backoff: max_ms is 20: accepts at least initial_ms, 50"),
        ({"multiplier": 0.5}, "retry_backoff: multiplier is 0.5: accepts 1 to 100"),
        ({"jitter": 1}, "retry_backoff: jitter is 1: accepts 0 or more, and less than 1"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(arguments: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}$"):
        Backoff(**arguments)
