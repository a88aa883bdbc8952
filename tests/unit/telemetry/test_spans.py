"""Spans against the tables of semconv 1.44, and contexts in headers."""

from contextvars import copy_context

import pyarrow as pa
import pytest
from fakes.spans import batch, context, kept_spans, made
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.errors import UnknownMemberIdError
from kafka_actors.producer.futures import BatchFuture, BatchResult
from kafka_actors.producer.routing import PartitionRows
from kafka_actors.producer.telemetry import SendSpans
from kafka_actors.telemetry import spans
from kafka_actors.telemetry.attributes import of_cluster, of_server
from kafka_actors.telemetry.headers import links_of
from kafka_actors.telemetry.spans import (
    ProcessSpans,
    committing,
    received,
    settling,
    traceparent,
)
from kafka_actors.types import TopicPartition

ATTRIBUTES = {
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.destination.partition.id",
    "messaging.consumer.group.name",
    "messaging.client.id",
    "messaging.batch.message_count",
    "messaging.kafka.offset",
    "messaging.kafka.message.tombstone",
    "messaging.kafka.cluster.id",
    "server.address",
    "server.port",
    "error.type",
}


"""Of the tables of `docs/messaging/kafka.md` that these spans fill in."""


CLUSTER = ClusterSnapshot(
    1,
    "the-cluster",
    None,
    {2: BrokerMetadata(2, "two", 9094)},
    {"orders": TopicMetadata("orders", partitions={3: PartitionMetadata(3, leader=2)})},
)


IN_IT = {"messaging.kafka.cluster.id": "the-cluster"}


AT_TWO = {"server.address": "two", "server.port": 9094}


KINDS = {
    "poll": ("receive", SpanKind.CLIENT),
    "process": ("process", SpanKind.CONSUMER),
    "commit": ("settle", SpanKind.CLIENT),
    "send": ("send", SpanKind.PRODUCER),
}


"""Operation → its type, and the kind of its span (the table "Span kind" of messaging-spans.md)."""


@pytest.fixture
def exported():
    """The spans that ended, with an SDK in the process."""
    with kept_spans() as ended:
        yield ended


def checked(span):
    """A span as the conventions want it; returns its attributes."""
    found = dict(span.attributes)
    operation = found["messaging.operation.name"]
    destination = found.get("messaging.destination.name")
    assert span.name == (f"{operation} {destination}" if destination else operation)
    kind = KINDS[operation]
    if operation == "send" and span.links:
        kind = ("send", SpanKind.CLIENT)
    assert (found["messaging.operation.type"], span.kind) == kind
    assert found["messaging.system"] == "kafka"
    assert found.keys() <= ATTRIBUTES
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    return found


def linked(span):
    return [traceparent(link.context) for link in span.links]


# ---------------------------------------------------------------- spans


def test_a_call_is_a_span_that_links_to_its_records_and_is_current_meanwhile(exported):
    calls = ProcessSpans("scorer", "client-1")
    with calls.call(batch(made(1), made(2)), "batch") as span:
        assert trace.get_current_span() is span
    assert trace.get_current_span() is trace.INVALID_SPAN
    (ended,) = exported()
    found = checked(ended)
    assert sorted(linked(ended)) == [context(1), context(2)]
    assert found["messaging.batch.message_count"] == 2
    assert (found["messaging.destination.partition.id"], found["messaging.consumer.group.name"]) == (
        "3",
        "scorer",
    )
    assert "messaging.kafka.offset" not in found


def test_a_call_with_one_message_tells_its_offset(exported):
    with ProcessSpans("g", "c").call(batch(None), "message"):
        pass
    found = checked(exported()[0])
    assert found["messaging.kafka.offset"] == 100
    assert not {"messaging.batch.message_count", "messaging.kafka.message.tombstone"} & found.keys()


def test_a_call_with_a_tombstone_says_so_and_where_its_messages_are_of_if_that_is_known(exported):
    calls = ProcessSpans("g", "c")
    calls.where = of_cluster("the-cluster")
    one = batch(None)
    dead = one.set_column(0, "value", pa.nulls(1, pa.binary()))
    for each, unit in ((dead, "message"), (dead, "batch")):
        with calls.call(each, unit):
            pass
    single, many = [checked(span) for span in exported()]
    assert single.items() >= {"messaging.kafka.message.tombstone": True, **IN_IT}.items()
    assert many.items() >= IN_IT.items()
    assert "messaging.kafka.message.tombstone" not in many, "it is of a message, not of a batch"


def test_of_an_error_its_kind_is_told_and_not_its_text(exported):
    with ProcessSpans("g", "c").call(batch(None), "batch") as span:
        spans.failed(span, ValueError("the text of a message"))
    (ended,) = exported()
    assert checked(ended)["error.type"] == "ValueError"
    assert "the text of a message" not in ended.to_json()
    assert not ended.status.is_ok


def test_a_commit_links_to_the_calls_it_settles_and_goes_on_in_another_process(exported):
    calls = ProcessSpans("g", "c")
    for _ in range(2):
        with calls.call(batch(None), "batch"):
            pass
    with committing("g", calls.take()) as travels:
        pass
    with committing("g", requested_by=[travels]):
        pass
    first, second, asked, done = exported()
    assert checked(asked)["messaging.consumer.group.name"] == "g"
    assert linked(asked) == [traceparent(s.context) for s in (first, second)]
    assert travels == traceparent(asked.context)
    checked(done)
    assert (done.parent.span_id, done.context.trace_id) == (asked.context.span_id, asked.context.trace_id)
    assert calls.take() == []


def test_a_commit_for_many_workers_links_to_all_of_them(exported):
    with committing("g", requested_by=[context(1), context(2), ""]):
        pass
    (done,) = exported()
    assert done.parent is None
    assert linked(done) == [context(1), context(2)]


def test_a_commit_that_fails_is_a_failed_span(exported):
    with pytest.raises(ValueError, match="no"), committing("g"):
        raise ValueError("no")
    assert checked(exported()[0])["error.type"] == "ValueError"


def test_who_answered_a_commit_is_told_in_the_span_of_who_asked_for_it(exported):
    who = (*of_cluster("the-cluster"), *of_server("two", 9094))
    with committing("g"), settling("g") as answered:
        answered(who, None)
    with committing("g"), settling("g") as answered:
        answered(who, UnknownMemberIdError())
    done, refused = exported()
    assert checked(done).items() >= {**IN_IT, **AT_TWO}.items()
    assert "error.type" not in done.attributes
    assert checked(refused)["error.type"] == "UNKNOWN_MEMBER_ID"
    assert not refused.status.is_ok


def test_offsets_that_nobody_asked_to_commit_are_settled_in_a_trace_of_their_own(exported):
    with committing("g"):
        pass
    with trace.get_tracer("users").start_as_current_span("start"), settling("g") as answered:
        answered(of_server("two", 9094), None)
    asked, unasked, users = exported()
    assert (asked.name, unasked.name, users.name) == ("commit", "commit", "start")
    assert checked(unasked).items() >= {**AT_TWO, "messaging.consumer.group.name": "g"}.items()
    assert unasked.parent is None
    with pytest.raises(ValueError, match="no"), settling("g"):
        raise ValueError("no")
    assert checked(exported()[3])["error.type"] == "ValueError"


def test_a_commit_that_is_over_is_told_nothing_more(exported, caplog):
    """A loop that is started within a commit keeps the context that it was started in."""
    with committing("g"):
        within = copy_context()

    def later():
        with settling("g") as answered:
            answered(of_server("two", 9094), None)

    within.run(later)
    first, second = exported()
    assert "server.address" not in first.attributes
    assert (second.parent, second.attributes["server.address"]) == (None, "two")
    assert caplog.text == ""


def test_a_poll_is_a_span_of_its_duration(exported):
    received("g", "c", batch(made(1)), seconds=0.25)
    (ended,) = exported()
    found = checked(ended)
    assert (found["messaging.batch.message_count"], linked(ended)) == (1, [context(1)])
    assert ended.end_time - ended.start_time == 250_000_000


class Outcome:
    base_offset, timestamp_ms = 7, -1

    def __init__(self, error=None):
        self.error = error


class Sent:
    """A batch of the producer's own, of `total` records."""

    first = 0

    def __init__(self, total):
        self.total = self.records = total


def test_a_send_ends_when_all_is_acknowledged_and_its_context_is_in_the_records(exported):
    future, result = BatchFuture(2), BatchResult(TopicPartition("orders", 0))
    part = SendSpans("p", lambda: CLUSTER).batch(
        PartitionRows("orders", batch(None, [("a", b"b")]), None), future
    )
    future.add(result, 0, [0, 1])
    future.complete()
    assert exported() == ()
    result.settle(Sent(2), Outcome())
    (ended,) = exported()
    assert checked(ended).items() >= {"messaging.batch.message_count": 2, **IN_IT}.items()
    assert "server.address" not in ended.attributes, "it may go to several brokers"
    assert (ended.kind, linked(part.batch and ended)) == (SpanKind.PRODUCER, [])
    assert [traceparent(link.context) for link in links_of(part.batch)] == [traceparent(ended.context)]


def test_a_records_own_context_stays_and_the_send_links_to_it(exported):
    future = BatchFuture(1)
    part = SendSpans("p").batch(PartitionRows("orders", batch(made(5)), None), future)
    future.complete()
    (ended,) = exported()
    checked(ended)
    assert (ended.kind, linked(ended)) == (SpanKind.CLIENT, [context(5)])
    assert [traceparent(link.context) for link in links_of(part.batch)] == [context(5)]
    sends = SendSpans("p")
    span, headers = sends.record(TopicPartition("orders", 3), [(b"traceparent", context(6).encode())])
    span.end()
    assert headers == [(b"traceparent", context(6).encode())]
    assert linked(exported()[1]) == [context(6)]


def test_a_single_record_is_a_span_with_its_own_outcome(exported):
    sends, result = SendSpans("p"), BatchResult(TopicPartition("orders", 3))
    assert sends.on
    span, headers = sends.record(TopicPartition("orders", 3), [(b"a", b"b")])
    sends.ends(span, result, 0)
    result.settle(Sent(1), Outcome(ValueError("no")))
    (ended,) = exported()
    found = checked(ended)
    assert found["error.type"] == "ValueError"
    assert found["messaging.destination.partition.id"] == "3"
    assert "messaging.batch.message_count" not in found
    assert headers == [(b"a", b"b"), (b"traceparent", traceparent(ended.context).encode())]


def test_a_single_record_is_where_its_offset_and_its_leader_are(exported):
    sends = SendSpans("p", lambda: CLUSTER)
    for index, value in enumerate((b"x", None)):
        result = BatchResult(TopicPartition("orders", 3))
        span, _ = sends.record(TopicPartition("orders", 3), None, tombstone=value is None)
        sends.ends(span, result, index)
        result.settle(Sent(2), Outcome())
    first, second = [checked(span) for span in exported()]
    assert first.items() >= {"messaging.kafka.offset": 7, **IN_IT, **AT_TWO}.items()
    assert "messaging.kafka.message.tombstone" not in first
    assert (second["messaging.kafka.offset"], second["messaging.kafka.message.tombstone"]) == (8, True)


def test_without_an_sdk_nothing_is_made(monkeypatch):
    monkeypatch.setattr(spans, "_look_at", 0.0)
    assert not spans.tracing()
    part = PartitionRows("orders", batch(None), None)
    assert SendSpans("p").batch(part, BatchFuture(1)) is part
    assert not SendSpans("p").on
    calls = ProcessSpans("g", "c")
    with calls.call(part.batch, "batch") as span, committing("g", calls.take()) as travels:
        assert (span, travels) == (None, "")
    with settling("g") as answered:
        answered(of_server("two", 9094), ValueError("no"))
