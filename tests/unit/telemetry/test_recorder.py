"""Values on their way: into a meter, or through tallies that travel and the totals of their supervisor."""

import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kafka_actors.errors import ConfigError, UnknownTopicOrPartitionError
from kafka_actors.telemetry import recorder as recording
from kafka_actors.telemetry.attributes import error_type, of_group, of_operation, of_partition, with_error
from kafka_actors.telemetry.gauges import Gauges
from kafka_actors.telemetry.instruments import (
    BY_NAME,
    CONSUMED_MESSAGES,
    LAG,
    LATENCY,
    PROCESS_DURATION,
    SECONDS,
    WORKERS,
)
from kafka_actors.telemetry.recorder import BucketSums, Distributions, GroupRecorder, MeterRecorder, Recorder
from kafka_actors.telemetry.tally import Buckets, Tally, TallyPoint, TallyState, TallyTotals

A, B = of_partition("g", "t", 0, "process"), of_partition("g", "t", 1, "process")


class Kept(Recorder):
    """Remembers what it got."""

    def __init__(self):
        self.sums = {}
        self.values = {}

    def add(self, instrument, amount, attributes=()):
        key = instrument.name, attributes
        self.sums[key] = self.sums.get(key, 0) + amount

    def record(self, instrument, value, attributes=()):
        self.values.setdefault((instrument.name, attributes), []).append(value)


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def meter(reader):
    return MeterProvider([reader]).get_meter("test")


def exported(reader):
    """Name → points, each (attributes, point)."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {m.name: [(dict(p.attributes), p) for p in m.data.data_points] for m in metrics}


def test_every_value_of_a_group_has_its_label_once():
    kept = Kept()
    recorder = GroupRecorder(kept, "g")
    recorder.add(CONSUMED_MESSAGES, 1, A)
    recorder.add(WORKERS, 2, of_group("g", ready="true"))
    recorder.record(PROCESS_DURATION, 0.1)
    GroupRecorder(kept, None).record(PROCESS_DURATION, 0.2)
    assert kept.sums == {
        (CONSUMED_MESSAGES.name, (("group", "g"), *A)): 1,
        (WORKERS.name, (("group", "g"), ("ready", "true"))): 2,
    }
    assert kept.values == {
        (PROCESS_DURATION.name, (("group", "g"),)): [0.1],
        (PROCESS_DURATION.name, ()): [0.2],
    }


def test_a_meter_gets_each_instrument_as_the_table_says(reader, meter):
    recorder = MeterRecorder(meter)
    recorder.add(CONSUMED_MESSAGES, 3, A)
    recorder.add(CONSUMED_MESSAGES, 4, A)
    recorder.into(PROCESS_DURATION, of_operation("process", "g", "t", typed=False))(0.02)
    read = exported(reader)
    ((attributes, point),) = read["messaging.client.consumed.messages"]
    assert point.value == 7
    assert attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.consumer.group.name": "g",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
    }
    ((_, histogram),) = read["messaging.process.duration"]
    assert tuple(histogram.explicit_bounds) == SECONDS
    assert histogram.bucket_counts[2] == 1


def test_without_an_sdk_recording_does_nothing():
    Recorder().add(CONSUMED_MESSAGES, 1, A)
    Recorder().record(PROCESS_DURATION, 1.0)


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


def test_what_was_read_of_distributions_does_not_change_with_what_comes():
    here = Distributions()
    here.add(LATENCY, [1, 0], 0.5, ())
    before = here.read()
    here.add(LATENCY, [1, 1], 2.0, ())
    assert before == {LATENCY: {(): BucketSums((1, 0), 0.5)}}
    assert here.read() == {LATENCY: {(): BucketSums((2, 1), 2.5)}}


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


def test_gauges_come_and_go_with_their_sources(reader, meter):
    now = [0.0]
    gauges = Gauges(meter, clock=lambda: now[0])
    where = (("group", "g"), ("topic", "t"), ("partition", 0))
    forget = gauges.register(lambda: [TallyPoint(LAG.name, where, 7), TallyPoint(WORKERS.name, (), 2)])
    failing = gauges.register(lambda: 1 / 0)
    read = exported(reader)
    ((attributes, point),) = read["kafka.consumer_group.lag"]
    assert (attributes, point.value) == ({"group": "g", "topic": "t", "partition": 0}, 7)
    assert read["kafka_actors.workers"][0][1].value == 2
    failing()
    forget()
    assert exported(reader) == {}
    gauges.register(lambda: [TallyPoint(LAG.name, where, 8)])
    assert exported(reader)["kafka.consumer_group.lag"][0][1].value == 8


def test_one_look_at_a_source_answers_all_instruments_of_a_collection(reader, meter):
    looks = []
    now = [0.0]
    gauges = Gauges(meter, clock=lambda: now[0])
    gauges.register(lambda: looks.append(1) or [TallyPoint(LAG.name, (), 1), TallyPoint(WORKERS.name, (), 1)])
    reader.get_metrics_data()
    assert len(looks) == 1
    now[0] += 1
    reader.get_metrics_data()
    assert len(looks) == 2


def test_errors_are_named_as_kafka_names_them():
    class Mine(ValueError): ...

    assert error_type(UnknownTopicOrPartitionError()) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_type(ValueError("the text of a user")) == "ValueError"
    assert error_type(ConfigError("a", "b")) == "kafka_actors.errors.ConfigError"
    assert error_type(Mine()).endswith("test_errors_are_named_as_kafka_names_them.Mine")
    assert with_error(A, None) == A
    assert with_error((), ValueError()) == (("error.type", "ValueError"),)


def test_every_attribute_that_is_given_is_in_the_table():
    assert {key for key, _ in A} <= set(BY_NAME[CONSUMED_MESSAGES.name].attributes)
