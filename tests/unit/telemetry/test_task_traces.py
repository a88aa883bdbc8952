"""A process that works on one task after the other: each span has the resource of the task in which it began."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kafka_actors.telemetry import sdk
from kafka_actors.telemetry.sdk import TaskTraces


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter):
    processors = SynchronousMultiSpanProcessor()
    processors.add_span_processor(SimpleSpanProcessor(exporter))
    process = Resource({"service.name": "worker"})

    def provider_of(task):
        return TracerProvider(
            resource=process.merge(Resource(task)), active_span_processor=processors, shutdown_on_exit=False
        )

    return TaskTraces(provider_of)


def tasks_of(exporter):
    return {span.name: span.resource.attributes.get("task") for span in exporter.get_finished_spans()}


def test_a_tracer_that_was_got_before_a_task_gives_spans_of_it(traces, exporter):
    kept = traces.get_tracer("users")
    kept.start_span("before all tasks").end()
    for task in (1, 2):
        traces.begin({"task": task})
        kept.start_span(f"in {task}").end()
        traces.get_tracer("ours", "1.0", schema_url="https://opentelemetry.io/schemas/1.44.0").start_span(
            f"ours in {task}"
        ).end()
    assert tasks_of(exporter) == {
        "before all tasks": None,
        "in 1": 1,
        "ours in 1": 1,
        "in 2": 2,
        "ours in 2": 2,
    }
    scopes = {s.instrumentation_scope.name: s.instrumentation_scope for s in exporter.get_finished_spans()}
    assert (scopes["ours"].version, scopes["ours"].schema_url) == (
        "1.0",
        "https://opentelemetry.io/schemas/1.44.0",
    )
    assert {s.resource.attributes["service.name"] for s in exporter.get_finished_spans()} == {"worker"}


def test_a_span_that_is_current_is_the_parent_of_others_tracers_spans(traces, exporter):
    traces.begin({"task": 1})
    with traces.get_tracer("ours").start_as_current_span("outer") as outer:
        traces.get_tracer("users").start_span("inner").end()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert spans["inner"].parent.span_id == outer.get_span_context().span_id
    assert spans["outer"].parent is None


def test_a_process_without_variables_traces_no_task(monkeypatch):
    monkeypatch.setattr(sdk.os, "environ", {})
    monkeypatch.setattr(sdk, "has_meter_provider", lambda: False)
    monkeypatch.setattr(sdk, "has_tracer_provider", lambda: False)
    monkeypatch.setattr(sdk, "_set_up", lambda *_, **__: pytest.fail("an SDK was set up"))
    assert not sdk.begin_task({}, {"task": 1})


def test_the_first_task_sets_up_traces_and_logs_alone_and_each_has_its_attributes(monkeypatch):
    """Into a process' own provider, so that this one's stays as it is."""
    made = []
    monkeypatch.setattr(
        sdk.os, "environ", {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "prometheus"}
    )
    monkeypatch.setattr(sdk.trace_api, "set_tracer_provider", made.append)
    monkeypatch.setattr(sdk, "has_tracer_provider", lambda: bool(made))
    monkeypatch.setattr(
        sdk, "_metrics", lambda *_: pytest.fail("a worker of Spark has no metrics of its own")
    )
    monkeypatch.setattr(sdk, "_task_traces", [])
    monkeypatch.setattr(sdk, "_running", [])
    for number in (1, 2):
        assert sdk.begin_task({"spark.application.id": "app-1"}, {"spark.stage.id": number})
        span = made[0].get_tracer("t").start_span("s")
        assert span.resource.attributes["spark.application.id"] == "app-1"
        assert span.resource.attributes["spark.stage.id"] == number
        assert span.resource.attributes["service.name"] == "kafka-actors"
    assert len(made) == 1
    assert isinstance(made[0], TaskTraces)
    assert isinstance(made[0], trace.TracerProvider)
