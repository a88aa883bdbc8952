"""Bisection finds the rows for which a call fails."""

from collections.abc import Callable

from kafka_actors.base.bisect import MAX_FAILED_CALLS, Bisection, PartCalls


def bisected(rows: int, fails: Callable[[int], bool]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The parts that are given up, and all parts that are called, of a batch whose rows fail as `fails` says."""
    search, lost, called = Bisection(rows), [], []
    while (part := search.part) is not None:
        called.append(part)
        if any(fails(row) for row in range(part[0], part[0] + part[1])):
            if search.failed():
                lost.append(part)
        else:
            search.succeeded()
    return lost, called


def test_only_the_rows_at_fault_are_given_up_and_parts_come_in_order() -> None:
    lost, called = bisected(8, {2, 7}.__contains__)
    assert lost == [(2, 1), (7, 1)]
    assert called == [(0, 4), (0, 2), (2, 2), (2, 1), (3, 1), (4, 4), (4, 2), (6, 2), (6, 1), (7, 1)]


def test_a_batch_of_one_row_is_given_up_at_once() -> None:
    assert Bisection(1).part is None


def test_where_no_call_succeeds_the_rest_is_given_up_in_large_parts() -> None:
    lost, called = bisected(10_000, lambda row: True)
    assert sum(rows for _, rows in lost) == 10_000
    assert MAX_FAILED_CALLS <= len(called) < MAX_FAILED_CALLS + 20
    assert max(rows for _, rows in lost) == 5_000


def test_after_one_success_every_row_at_fault_is_found() -> None:
    lost, _ = bisected(1_000, lambda row: row > 0)
    assert lost == [(row, 1) for row in range(1, 1_000)]


def test_parts_are_worth_a_try_until_many_have_failed_and_none_has_succeeded() -> None:
    calls = PartCalls()
    assert [calls.failed() for _ in range(MAX_FAILED_CALLS)] == [True] * (MAX_FAILED_CALLS - 1) + [False]
    calls.succeeded()
    assert calls.failed()
