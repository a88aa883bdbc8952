import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.cli.demo.ledger import Ledger, OffsetSet, batch_of

T0 = ("orders-eu", 0)
T1 = ("orders-eu", 1)


def _deliver(
    ledger: Ledger,
    first: int,
    last: int,
    worker: str = "a",
    partition: tuple[str, int] = T0,
    now: float = 0.0,
) -> None:
    """Records `first` to `last`, each sold in DE or FR by its offset, for offset + 1 cents."""
    offsets = np.arange(first, last + 1, dtype=np.int64)
    countries, cents = batch_of([("DE" if o % 2 else "FR", int(o) + 1) for o in offsets])
    ledger.add(worker, partition, offsets, countries, cents, now)


def test_a_replay_that_cuts_the_batches_differently_counts_each_offset_once() -> None:
    ledger = Ledger()
    for first, last in ((0, 99), (100, 199), (50, 149), (150, 249), (0, 249)):
        _deliver(ledger, first, last)
    account = ledger.account()
    assert account.counted == {T0: 250}
    assert account.delivered == 650
    assert account.revenue == {"FR": sum(range(1, 251, 2)), "DE": sum(range(2, 251, 2))}
    assert sum(account.revenue_delivered.values()) > sum(account.revenue.values())


def test_the_same_offset_of_another_partition_is_another_record() -> None:
    ledger = Ledger()
    _deliver(ledger, 0, 9, partition=T0)
    _deliver(ledger, 0, 9, partition=T1)
    assert ledger.counted() == 20


def test_large_sums_stay_exact() -> None:
    ledger = Ledger()
    cents = np.array([2**60, 1, 1], dtype=np.int64)
    ledger.add("a", T0, np.arange(3), np.array(["DE"] * 3), cents, 0.0)
    assert ledger.account().revenue == {"DE": 2**60 + 2}


def test_taking_over_is_timed_from_the_kill_to_the_first_delivery_by_another_worker() -> None:
    ledger = Ledger()
    _deliver(ledger, 0, 9, worker="dead", now=1.0)
    ledger.worker_killed("dead", [T0, T1], 10.0)
    _deliver(ledger, 10, 19, worker="dead", now=10.1)  # what was on its way when it died
    _deliver(ledger, 10, 29, worker="heir", now=10.5)
    _deliver(ledger, 30, 39, worker="heir", now=12.0)
    account = ledger.account()
    assert account.taken_over == {T0: 0.5}
    assert (account.delivered_before_kill, account.counted_before_kill) == (10, 10)
    _deliver(ledger, 0, 9, worker="heir", partition=T1, now=11.0)
    assert ledger.account().taken_over == {T0: 0.5, T1: 1.0}


@given(st.lists(st.lists(st.integers(0, 5_000), max_size=40), max_size=20))
def test_offsets_are_new_exactly_once(deliveries: list[list[int]]) -> None:
    offsets, known = OffsetSet(), set[int]()
    for delivery in deliveries:
        new = offsets.add(np.array(delivery, dtype=np.int64))
        assert sorted(np.array(delivery, dtype=np.int64)[new].tolist()) == sorted(set(delivery) - known)
        known |= set(delivery)
        assert offsets.count == len(known)
