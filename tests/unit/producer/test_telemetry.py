"""What a producer tells of itself."""

from types import SimpleNamespace

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot
from kafka_actors.errors import RequestTimedOutError
from kafka_actors.producer.futures import BatchResult
from kafka_actors.producer.machines.batch import ProducerBatch
from kafka_actors.producer.machines.produce_requests import ProduceAnswer, ProduceOrder
from kafka_actors.producer.machines.sender import SettledBatch
from kafka_actors.producer.telemetry import ProducerTelemetry, SendSpans, server_of
from kafka_actors.telemetry.instruments import BY_NAME
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition

AT_ONE = server_of(ClusterSnapshot(brokers={1: BrokerMetadata(1, "one", 9092)}), 1)


def sent(topic, partition, records):
    return SimpleNamespace(partition=TopicPartition(topic, partition), records=records)


def read(tally):
    state = tally.state()
    for point in [*state.counts, *state.buckets]:
        assert {key for key, _ in point.attributes} <= set(BY_NAME[point.name].attributes)
    counts = {
        (
            a["messaging.destination.name"],
            a["messaging.destination.partition.id"],
            a.get("error.type"),
        ): p.value
        for p in state.counts
        for a in [dict(p.attributes)]
    }
    times = {
        (a.get("messaging.destination.name"), a.get("error.type")): sum(b.sums)
        for b in state.buckets
        for a in [dict(b.attributes)]
    }
    return counts, times


def test_messages_count_at_each_attempt_with_what_became_of_it():
    tally = Tally()
    observer = ProducerTelemetry(tally)
    order = ProduceOrder(1, [sent("t", 0, 5), sent("t", 1, 7)])
    refused = {
        TopicPartition("t", 0): ProduceAnswer(0, 3, -1, None),
        TopicPartition("t", 1): ProduceAnswer(6, -1, -1, None),
    }
    observer.answered(0.25, order, refused, AT_ONE)
    answer = {TopicPartition("t", 1): ProduceAnswer(0, 9, -1, None)}
    observer.answered(0.5, ProduceOrder(1, [sent("t", 1, 7)]), answer, AT_ONE)
    counts, times = read(tally)
    state = tally.state()
    for point in [*state.counts, *state.buckets]:
        assert set(AT_ONE) <= set(point.attributes), "the broker that it went to"
    assert counts == {
        ("t", "0", None): 5,
        ("t", "1", "NOT_LEADER_OR_FOLLOWER"): 7,
        ("t", "1", None): 7,
    }
    assert times == {("t", "NOT_LEADER_OR_FOLLOWER"): 0.25, ("t", None): 0.5}


def test_a_request_without_an_answer_is_an_error_of_its_messages():
    tally = Tally()
    ProducerTelemetry(tally).failed(
        30.0, ProduceOrder(1, [sent("t", 0, 5), sent("u", 0, 1)]), RequestTimedOutError()
    )
    counts, times = read(tally)
    assert counts == {("t", "0", "REQUEST_TIMED_OUT"): 5, ("u", "0", "REQUEST_TIMED_OUT"): 1}
    assert times == {(None, "REQUEST_TIMED_OUT"): 30.0}


def test_a_broker_that_is_not_known_is_not_named():
    assert AT_ONE == (("server.address", "one"), ("server.port", 9092))
    assert server_of(ClusterSnapshot(), 1) == server_of(ClusterSnapshot(), None) == ()


def test_a_span_that_can_not_be_ended_keeps_no_outcome_from_others():
    class Refused:
        def set_attribute(self, *_):
            raise ValueError("a processor's own")

    result, told, partition = BatchResult(TopicPartition("t", 0)), [], TopicPartition("t", 0)
    SendSpans("p").ends(Refused(), result, 0)
    result.when_done(lambda: told.append(result.done))
    batch = ProducerBatch(partition, SimpleNamespace(count=1, used=9), 0.0, result)
    assert result.settle(batch, SettledBatch(batch, 7))
    assert told == [True]
