"""Values go into a meter, with the label of their group; distributions keep their sums."""

from fakes.telemetry import Kept, exported

from kafka_actors.telemetry.attributes import of_group, of_operation, of_partition
from kafka_actors.telemetry.instruments import (
    CONSUMED_MESSAGES,
    LATENCY,
    PROCESS_DURATION,
    SECONDS,
    WORKERS,
)
from kafka_actors.telemetry.recorder import BucketSums, Distributions, GroupRecorder, MeterRecorder, Recorder

A, B = of_partition("g", "t", 0, "process"), of_partition("g", "t", 1, "process")


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


def test_what_was_read_of_distributions_does_not_change_with_what_comes():
    here = Distributions()
    here.add(LATENCY, [1, 0], 0.5, ())
    before = here.read()
    here.add(LATENCY, [1, 1], 2.0, ())
    assert before == {LATENCY: {(): BucketSums((1, 0), 0.5)}}
    assert here.read() == {LATENCY: {(): BucketSums((2, 1), 2.5)}}
