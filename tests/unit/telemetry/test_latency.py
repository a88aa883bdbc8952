"""Latency counted in buckets, of a sample of each batch."""

import itertools
import random

import pytest

from kafka_actors.telemetry.instruments import LATENCY_SECONDS
from kafka_actors.telemetry.machines.latency import LatencyTally, added, histogram, quantile, since


def counted(*ages_ms, each=1):
    tally = LatencyTally()
    for age in ages_ms:
        tally.take([age], each)
    return tally.counts


def test_a_quantile_is_what_a_sorted_list_would_say_within_a_fifth():
    random.seed(1)
    ages = sorted(random.lognormvariate(4, 1.5) for _ in range(20_000))
    counts = counted(*ages)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999):
        assert quantile(counts, share) == pytest.approx(ages[int(share * len(ages))], rel=0.2)


def test_a_sample_stands_for_all_records_of_its_batch_and_none_is_lost():
    tally = LatencyTally()
    tally.take([5.0, 50.0, 500.0], 1_000)
    assert sum(tally.counts.values()) == 1_000
    assert sorted(tally.counts.values()) == [333, 333, 334]
    tally.take([5.0], 7)
    assert sum(tally.counts.values()) == 1_007


def test_many_fast_records_outweigh_a_slow_batch_of_few():
    tally = LatencyTally()
    tally.take([10.0], 990)
    tally.take([60_000.0], 10)
    assert quantile(tally.counts, 0.5) == pytest.approx(10, rel=0.2)
    assert quantile(tally.counts, 0.98) == pytest.approx(10, rel=0.2)
    assert quantile(tally.counts, 0.995) == pytest.approx(60_000, rel=0.2)


@pytest.mark.parametrize("age_ms", [-5_000.0, 0.0, 0.4])
def test_what_took_no_time_and_what_comes_from_the_future_is_below_a_millisecond(age_ms):
    assert 0 <= quantile(counted(age_ms), 0.99) <= 1


def test_however_old_a_record_is_it_has_a_bucket():
    counts = counted(1e15, 1e18)
    assert len(counts) == 1
    assert quantile(counts, 0.5) > 1e11


def test_nothing_has_no_quantile():
    assert quantile({}, 0.5) is None
    assert quantile(since({3: 5}, {3: 5}), 0.5) is None


def test_a_batch_whose_records_have_no_timestamps_counts_nothing():
    tally = LatencyTally()
    tally.take([], 100)
    assert tally.counts == {}


def test_sums_and_differences():
    assert added([{1: 2, 3: 4}, {3: 5}, {}]) == {1: 2, 3: 9}
    assert since({1: 5, 2: 7, 9: 1}, {1: 2, 2: 7}) == {1: 3, 9: 1}


def test_a_coordinator_that_knows_less_than_the_one_before_makes_no_negative_counts():
    assert since({1: 5}, {1: 9, 2: 4}) == {}


def test_coarser_buckets_hold_the_same_records_and_sums_are_near():
    random.seed(2)
    ages_ms = [random.lognormvariate(5, 3) for _ in range(5_000)]
    counts, sums = histogram(counted(*ages_ms), LATENCY_SECONDS)
    bounds = [0.0, *LATENCY_SECONDS, float("inf")]
    inside = [
        [age / 1000 for age in ages_ms if low <= age / 1000 < high]
        for low, high in itertools.pairwise(bounds)
    ]
    assert counts == [len(ages) for ages in inside]
    for found, ages in zip(sums[1:-1], inside[1:-1], strict=True):
        assert found == pytest.approx(sum(ages), rel=0.1)


def test_what_is_faster_and_what_is_slower_than_all_boundaries_has_its_bucket():
    counts, _ = histogram(counted(0.5, 10_000_000.0, each=7), LATENCY_SECONDS)
    assert (counts[0], counts[-1], sum(counts)) == (7, 7, 14)
    assert histogram({}, LATENCY_SECONDS) == ([0] * 24, [0.0] * 24)
