"""Tallies travel as a whole, and their totals pass on what is new in them."""

import threading

import msgspec
import pytest
from fakes.telemetry import Kept
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.telemetry import recorder as recording
from kafka_actors.telemetry.attributes import of_group, of_partition
from kafka_actors.telemetry.instruments import (
    CONSUMED_MESSAGES,
    LATENCY,
    PROCESS_DURATION,
    SECONDS,
)
from kafka_actors.telemetry.recorder import Distributions, MeterRecorder
from kafka_actors.telemetry.tally import Buckets, Tally, TallyPoint, TallyState, TallyTotals

A, B = of_partition("g", "t", 0, "process"), of_partition("g", "t", 1, "process")


def through_the_wire(tally):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(tally.state()), type=TallyState)


def test_tallies_that_are_lost_repeated_or_late_change_nothing():
    tally, kept = Tally(), Kept()
    totals = TallyTotals(kept)
    tally.add(CONSUMED_MESSAGES, 5, A)
    tally.record(PROCESS_DURATION, 0.02, A)
    first = through_the_wire(tally)
    tally.add(CONSUMED_MESSAGES, 2, A)
    tally.add(CONSUMED_MESSAGES, 1, B)
    tally.record(PROCESS_DURATION, 0.021, A)
    second = through_the_wire(tally)
    for state in (first, first, second, first, second):
        totals.take("worker-0.1", state)
    assert kept.sums == {(CONSUMED_MESSAGES.name, A): 7, (CONSUMED_MESSAGES.name, B): 1}
    assert kept.values == {(PROCESS_DURATION.name, A): pytest.approx([0.02, 0.021])}


def test_sums_never_fall_when_an_actor_is_replaced():
    kept = Kept()
    totals = TallyTotals(kept)
    old, new = Tally(), Tally()
    old.add(CONSUMED_MESSAGES, 100, A)
    totals.take("worker-0.1", through_the_wire(old))
    totals.forget("worker-0.1")
    new.add(CONSUMED_MESSAGES, 1, A)
    totals.take("worker-0.2", through_the_wire(new))
    assert kept.sums == {(CONSUMED_MESSAGES.name, A): 101}


def test_an_instrument_of_a_newer_actor_is_passed_over():
    kept = Kept()
    TallyTotals(kept).take("x", TallyState([TallyPoint("kafka_actors.not.yet", (), 1)]))
    assert kept.sums == {}


@given(st.lists(st.lists(st.floats(0, 20), max_size=6), max_size=6))
def test_a_histogram_arrives_with_its_count_its_sum_and_its_buckets(rounds):
    tally, kept = Tally(), Kept()
    totals = TallyTotals(kept)
    for values in rounds:
        for value in values:
            tally.record(PROCESS_DURATION, value, A)
        totals.take("w", through_the_wire(tally))
    sent = [value for values in rounds for value in values]
    arrived = kept.values.get((PROCESS_DURATION.name, A), [])
    assert len(arrived) == len(sent)
    assert sum(arrived) == pytest.approx(sum(sent))

    def buckets(values):
        # A mean of equal values may come out a hair beside them.
        return sorted(sum(v > b * (1 + 1e-12) for b in SECONDS) for v in values)

    assert buckets(arrived) == buckets(sent)


def latencies(**counts):
    """Counts and sums of a worker's latencies: so many of each second's bucket."""
    found, sums = [0] * (len(LATENCY.boundaries) + 1), [0.0] * (len(LATENCY.boundaries) + 1)
    for place, count in counts.items():
        found[int(place[1:])] = count
        sums[int(place[1:])] = count * 0.5
    return Buckets(LATENCY.name, of_group("g"), found, sums)


def test_latencies_come_counted_and_are_never_gone_through_one_by_one(monkeypatch):
    here = Distributions()
    monkeypatch.setattr(recording, "distributions", lambda: here)
    totals = TallyTotals(MeterRecorder(None))  # no meter is asked for anything
    many = 10**12
    totals.take("worker-0.1", TallyState([], [latencies(b3=many)]))
    totals.take("worker-0.1", TallyState([], [latencies(b3=many)]))
    totals.take("worker-0.1", TallyState([], [latencies(b3=many, b4=2)]))
    totals.forget("worker-0.1")
    totals.take("worker-0.2", TallyState([], [latencies(b3=5)]))
    ((instrument, by_attributes),) = here.read().items()
    assert instrument is LATENCY
    assert by_attributes.keys() == {of_group("g")}
    sums = by_attributes[of_group("g")]
    assert (sums.counts[3], sums.counts[4], sum(sums.counts)) == (many + 5, 2, many + 7)
    assert sums.total == pytest.approx((many + 7) * 0.5)


def test_a_tally_may_be_read_while_others_record():
    tally, end = Tally(), threading.Event()

    def write(number):
        for n in range(3000):
            tally.add(CONSUMED_MESSAGES, 1, of_partition("g", f"t{number}", n % 100))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        tally.state()
    end.set()
    assert sum(point.value for point in tally.state().counts) == 6000
