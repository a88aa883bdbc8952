"""Sensors, their statistics over Kafka's windows, and the instruments that they are views on."""

from __future__ import annotations

import math

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kafka_actors.metrics import MetricName, Metrics, Stat
from kafka_actors.telemetry.attributes import of_group
from kafka_actors.telemetry.instruments import REBALANCE_DURATION
from kafka_actors.telemetry.recorder import MeterRecorder


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_statistics_are_of_the_last_windows_and_totals_of_all(clock):
    metrics = Metrics(clock=clock, num_samples=2, sample_window_ms=30_000)
    sensor = metrics.sensor("latency")
    for stat in Stat:
        sensor.add(metrics.metric_name(stat.value, "g"), stat)

    def values() -> dict[str, float]:
        return {name.name: value for name, value in metrics.metrics().items()}

    assert math.isnan(values()["avg"])
    assert math.isnan(values()["max"])
    assert values()["rate"] == 0
    sensor.record(10)
    sensor.record(30)
    assert values()["avg"] == 20
    assert values()["max"] == 30
    # The rate of a young sensor is over one window at least: two values in no time are not infinitely many a second.
    assert values()["rate"] == pytest.approx(2 / 30)
    clock.now += 40
    sensor.record(50)
    assert values() == {
        "avg": 30,
        "max": 50,
        "rate": pytest.approx(3 / 40),
        "rate-per-hour": pytest.approx(3 / 40 * 3600),
        "count": 3,
        "total": 90,
    }
    clock.now += 25  # the first window is 65 s old, the second 25
    assert (values()["avg"], values()["max"], values()["count"]) == (50, 50, 3)
    clock.now += 60
    assert math.isnan(values()["avg"])
    assert values()["total"] == 90


def test_sensor_of_one_name_and_tags_is_one_sensor(clock):
    metrics = Metrics(clock=clock)
    assert metrics.sensor("a") is metrics.sensor("a")
    assert metrics.sensor("a") is not metrics.sensor("a", {"client-id": "x"})


def test_a_name_in_use_is_refused_until_it_is_removed(clock):
    metrics = Metrics(clock=clock)
    name = metrics.metric_name("size", "g")
    metrics.add_metric(name, lambda now: 1.0)
    with pytest.raises(ValueError, match="the group 'g' already has a metric 'size'"):
        metrics.add_metric(MetricName("size", "g"), lambda now: 2.0)
    metrics.remove_metric(name)
    metrics.add_metric(name, lambda now: 2.0)
    assert metrics.metrics() == {name: 2.0}


def test_an_instrument_gets_what_its_sensor_gets_in_its_own_unit(clock):
    reader = InMemoryMetricReader()
    recorder = MeterRecorder(MeterProvider([reader]).get_meter("test"))
    metrics = Metrics(clock=clock, recorder=recorder)
    assert metrics.recorder is recorder
    export = recorder.into(REBALANCE_DURATION, of_group("g"))
    sensor = metrics.sensor("rebalance-latency", {"client-id": "x"}, export=export, scale=1000)
    sensor.add(metrics.metric_name("rebalance-latency-max", "g"), Stat.MAX)
    sensor.record(0.012)
    assert list(metrics.metrics().values()) == [12.0]
    (metric,) = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.data.data_points
    assert (metric.name, metric.unit) == ("kafka_actors.consumer_group.rebalance.duration", "s")
    assert (point.sum, point.attributes) == (0.012, {"group": "g"})
