"""What a coordinator measures, by the names that Kafka's clients have."""

from __future__ import annotations

import math

import pytest

from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import ConfigError, KafkaTimeoutError
from kafka_actors.group import ConsumerCoordinatorMetrics, GroupCoordinatorMetrics, Heartbeat
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.metrics import Metrics
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.telemetry.attributes import of_server
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import TopicPartition


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock) -> Metrics:
    return Metrics(clock=clock)


def read(metrics: Metrics) -> dict[str, float]:
    values = metrics.metrics()
    assert {name.group for name in values} == {"consumer-coordinator-metrics"}
    return {name.name: value for name, value in values.items()}


def test_group_metrics_have_kafkas_names(metrics, clock):
    GroupCoordinatorMetrics(Heartbeat(clock=clock), metrics, "consumer")
    assert set(read(metrics)) == {
        "heartbeat-response-time-max",
        "heartbeat-rate",
        "heartbeat-total",
        "join-time-avg",
        "join-time-max",
        "join-rate",
        "join-total",
        "sync-time-avg",
        "sync-time-max",
        "sync-rate",
        "sync-total",
        "rebalance-latency-avg",
        "rebalance-latency-max",
        "rebalance-latency-total",
        "rebalance-total",
        "rebalance-rate-per-hour",
        "failed-rebalance-total",
        "failed-rebalance-rate-per-hour",
        "last-heartbeat-seconds-ago",
        "last-rebalance-seconds-ago",
    }


def test_answers_are_measured_in_milliseconds_and_only_joins_that_succeed(metrics, clock):
    sensors = GroupCoordinatorMetrics(Heartbeat(clock=clock), metrics, "consumer")
    sensors.answered(GroupApi.HEARTBEAT, 0.002, False)
    sensors.answered(GroupApi.JOIN, 0.5, True)
    sensors.answered(GroupApi.JOIN, 9.0, False)
    sensors.answered(GroupApi.SYNC, 0.25, True)
    sensors.answered(GroupApi.LEAVE, 7.0, True)
    values = read(metrics)
    assert values["heartbeat-response-time-max"] == 2
    assert values["heartbeat-total"] == 1
    assert (values["join-time-max"], values["join-total"]) == (500, 1)
    assert (values["sync-time-avg"], values["sync-total"]) == (250, 1)


def test_last_heartbeat_is_minus_one_before_the_first(metrics, clock):
    heartbeat = Heartbeat(clock=clock)
    GroupCoordinatorMetrics(heartbeat, metrics, "consumer")
    assert read(metrics)["last-heartbeat-seconds-ago"] == -1
    heartbeat.sent_heartbeat()
    clock.now += 2.5
    assert read(metrics)["last-heartbeat-seconds-ago"] == 2.5


def test_rebalance_lasts_until_the_assignment_and_fails_where_another_begins(metrics, clock):
    sensors = GroupCoordinatorMetrics(Heartbeat(clock=clock), metrics, "consumer")
    assert read(metrics)["last-rebalance-seconds-ago"] == -1
    sensors.rebalance_started()
    clock.now += 1
    sensors.rebalance_started()
    assert (read(metrics)["failed-rebalance-total"], read(metrics)["rebalance-total"]) == (1, 0)
    clock.now += 2
    sensors.rebalance_ended()
    clock.now += 5
    values = read(metrics)
    assert (values["rebalance-latency-max"], values["rebalance-total"]) == (2000, 1)
    assert values["last-rebalance-seconds-ago"] == 5


def test_consumer_metrics_tell_commits_and_partitions(metrics):
    subscription = SubscriptionState()
    sensors = ConsumerCoordinatorMetrics(metrics, "consumer", subscription)
    assert math.isnan(read(metrics)["commit-latency-avg"])
    subscription.assign_from_user([TopicPartition("t", 0), TopicPartition("t", 1)])
    sensors.answered(0.003, OffsetCommitResponse())
    sensors.answered(9.0, KafkaTimeoutError("no answer"))  # not an answer
    values = read(metrics)
    assert set(values) == {
        "commit-latency-avg",
        "commit-latency-max",
        "commit-rate",
        "commit-total",
        "assigned-partitions",
    }
    assert (values["assigned-partitions"], values["commit-latency-max"]) == (2, 3)


def test_metrics_go_with_their_owner_and_a_new_one_may_follow(metrics, clock):
    first = ConsumerCoordinatorMetrics(metrics, "consumer", SubscriptionState())
    with pytest.raises(
        ConfigError, match="holds another coordinator's commit-latency-avg: give each its own"
    ):
        ConsumerCoordinatorMetrics(metrics, "consumer", SubscriptionState())
    other = ConsumerCoordinatorMetrics(metrics, "consumer", SubscriptionState(), {"client-id": "other"})
    other.close()
    first.close()
    assert metrics.metrics() == {}
    ConsumerCoordinatorMetrics(metrics, "consumer", SubscriptionState())


def test_the_classes_are_views_on_the_instruments_of_telemetry(clock):
    tally = Tally()
    metrics = Metrics(clock=clock, recorder=tally)
    group = GroupCoordinatorMetrics(Heartbeat(clock=clock), metrics, "consumer", group_id="g")
    commits = ConsumerCoordinatorMetrics(metrics, "consumer", SubscriptionState(), group_id="g")
    group.answered(GroupApi.HEARTBEAT, 0.002, True)
    group.rebalance_started()
    group.rebalance_started()
    clock.now += 4
    group.rebalance_ended()
    partition = OffsetCommitResponsePartition(partition_index=1, error_code=25)
    refused = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])
    server = of_server("two", 9094)
    for seconds, outcome in ((0.1, OffsetCommitResponse()), (0.2, refused), (0.3, KafkaTimeoutError("late"))):
        commits.answered(seconds, outcome, server)
    state = tally.state()
    assert [(p.name, dict(p.attributes), p.value) for p in state.counts] == [
        ("kafka_actors.consumer_group.rebalance.failures", {"group": "g"}, 1)
    ]
    found = {
        (b.name, dict(b.attributes).get("error.type", dict(b.attributes).get("request", ""))): sum(b.sums)
        for b in state.buckets
    }
    assert found == {
        ("kafka_actors.consumer_group.request.duration", "heartbeat"): 0.002,
        ("kafka_actors.consumer_group.rebalance.duration", ""): 4,
        ("messaging.client.operation.duration", ""): 0.1,
        ("messaging.client.operation.duration", "UNKNOWN_MEMBER_ID"): 0.2,
        ("messaging.client.operation.duration", "kafka_actors.errors.KafkaTimeoutError"): 0.3,
    }
    (commit, *_) = [b for b in state.buckets if b.name.startswith("messaging")]
    assert dict(commit.attributes) == {
        "group": "g",
        "messaging.system": "kafka",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.consumer.group.name": "g",
        "server.address": "two",
        "server.port": 9094,
    }
    values = read(metrics)
    assert (values["rebalance-latency-max"], values["commit-total"], values["commit-latency-max"]) == (
        4000,
        2,
        200,
    )
