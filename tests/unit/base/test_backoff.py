"""Pauses between tries."""

from __future__ import annotations

import pytest

from kafka_actors.base.backoff import Backoff, exponential_backoff


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
    backoff = Backoff(0.1, 1.0, lambda: 0.5)
    assert backoff.remaining(0.0) == 0.0
    assert backoff.failed(10.0) == pytest.approx(0.1)
    assert backoff.failed(10.0) == pytest.approx(0.2)
    assert backoff.remaining(10.05) == pytest.approx(0.15)
    assert backoff.remaining(11.0) == 0.0
    backoff.succeeded()
    assert backoff.remaining(10.0) == 0.0
    assert backoff.failed(10.0) == pytest.approx(0.1)


def test_no_backoff_configured_is_no_pause() -> None:
    backoff = Backoff(0.0, 0.0, lambda: 0.5)
    assert backoff.failed(1.0) == 0.0
    assert backoff.remaining(1.0) == 0.0
