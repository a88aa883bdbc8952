"""Histograms that come counted, in what an exporter gets beside what the SDK has collected."""

import itertools

import pytest
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult

from kafka_actors import __version__
from kafka_actors.telemetry.export import ExportingReader
from kafka_actors.telemetry.instruments import LATENCY, SCHEMA_URL
from kafka_actors.telemetry.recorder import Distributions

NOTHING = [0] * (len(LATENCY.boundaries) + 1)
SCORER, OTHER = (("group", "scorer"),), (("group", "other"),)


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self, temporality=None):
        super().__init__(preferred_temporality=None if temporality is None else {Histogram: temporality})
        self.exports = []

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        self.exports.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):
        pass


@pytest.fixture
def exporting(monkeypatch):
    """Exports when the test flushes; the clock is at 1, 2, 3… ns."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "inf")
    made = []

    def exporting(temporality=None):
        counted, exporter = Distributions(), Kept(temporality)
        ticks = itertools.count(1)
        provider = MeterProvider([ExportingReader(exporter, counted, lambda: next(ticks))])
        made.append(provider)

        def exported():
            exporter.exports.clear()
            provider.force_flush()
            (data,) = exporter.exports
            return data.resource_metrics[0].scope_metrics

        return counted, provider, exported

    yield exporting
    for provider in made:
        provider.shutdown()


def points_of(scopes):
    """The points of latency, by their group."""
    (found,) = [m for s in scopes for m in s.metrics if m.name == LATENCY.name] or [None]
    return {} if found is None else {p.attributes["group"]: p for p in found.data.data_points}


def counts(*first, last=0):
    return [*first, *NOTHING[len(first) : -1], last]


def test_they_stand_in_our_scope_with_name_unit_description_and_boundaries(exporting):
    counted, provider, exported = exporting()
    provider.get_meter("kafka_actors", "1", SCHEMA_URL).create_counter("seen").add(1)
    provider.get_meter("users").create_counter("theirs").add(1)
    counted.add(LATENCY, counts(3, 0, 2, last=1), 9_000.25, SCORER)
    scopes = exported()
    assert {s.scope.name: [m.name for m in s.metrics] for s in scopes} == {
        "kafka_actors": ["seen", "kafka_actors.latency"],
        "users": ["theirs"],
    }
    (ours,) = [s for s in scopes if s.scope.name == "kafka_actors"]
    assert ours.schema_url == SCHEMA_URL
    latency = ours.metrics[-1]
    assert (latency.unit, latency.description) == ("s", LATENCY.description)
    assert latency.data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    (point,) = latency.data.data_points
    assert dict(point.attributes) == {"group": "scorer"}
    assert (point.count, point.sum) == (6, 9_000.25)
    assert list(point.bucket_counts) == counts(3, 0, 2, last=1)
    assert point.explicit_bounds == LATENCY.boundaries


def test_cumulative_points_count_on_from_the_beginning(exporting):
    counted, provider, exported = exporting()
    provider.get_meter("kafka_actors").create_counter("seen").add(1)
    counted.add(LATENCY, counts(3), 0.25, SCORER)
    first = points_of(exported())["scorer"]
    counted.add(LATENCY, counts(1, 1), 0.5, SCORER)
    counted.add(LATENCY, NOTHING, 0.0, OTHER)
    found = points_of(exported())
    assert (found["scorer"].count, found["scorer"].sum, list(found["scorer"].bucket_counts)) == (
        5,
        0.75,
        counts(4, 1),
    )
    assert found["other"].count == 0
    assert found["scorer"].start_time_unix_nano == first.start_time_unix_nano < first.time_unix_nano
    assert first.time_unix_nano < found["scorer"].time_unix_nano


def test_differences_are_told_where_the_exporter_prefers_them(exporting):
    counted, provider, exported = exporting(AggregationTemporality.DELTA)
    provider.get_meter("kafka_actors").create_counter("seen").add(1)
    counted.add(LATENCY, counts(3), 0.25, SCORER)
    counted.add(LATENCY, counts(7), 0.25, OTHER)
    first = points_of(exported())
    assert {group: point.count for group, point in first.items()} == {"scorer": 3, "other": 7}
    counted.add(LATENCY, counts(1, 1), 0.5, SCORER)
    second = points_of(exported())
    assert {group: (p.count, p.sum) for group, p in second.items()} == {"scorer": (2, 0.5)}
    assert second["scorer"].start_time_unix_nano == first["scorer"].time_unix_nano
    assert points_of(exported()) == {}


def test_they_have_their_scope_also_where_the_sdk_has_nothing_of_ours(exporting):
    counted, provider, exported = exporting()
    provider.get_meter("users").create_counter("theirs").add(1)
    assert [s.scope.name for s in exported()] == ["users"]
    counted.add(LATENCY, counts(3), 0.25, SCORER)
    theirs, ours = exported()
    assert (ours.scope.name, ours.scope.version, ours.schema_url) == ("kafka_actors", __version__, SCHEMA_URL)
    assert points_of([theirs, ours])["scorer"].count == 3
