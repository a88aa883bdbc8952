"""Spans of a `Consumer`: what it hands out, and each commit, also those that nobody asked for."""

import time

import pytest
from fakes.spans import kept_spans
from opentelemetry import trace
from waiting import slow_s

import kafka_actors as ka


@pytest.fixture
def topic(kafka_topic, produce):
    name = kafka_topic(partitions=1)
    produce(name, [b"x"] * 10, partition=0)
    return name


@pytest.fixture
def consumer_of(cluster, topic, group_id):
    """Makes a consumer that has ten records in hand."""

    def make(**options):
        servers = cluster.bootstrap_servers
        consumer = ka.Consumer(
            topic, group_id=group_id, bootstrap_servers=servers, auto_offset_reset="earliest", **options
        )
        count, deadline = 0, time.monotonic() + slow_s(30)
        while count < 10 and time.monotonic() < deadline:
            batch = consumer.poll_batch(timeout_ms=1_000)
            count += 0 if batch is None else batch.num_rows
        assert count == 10
        return consumer

    return make


def commits(ended):
    return [span for span in ended() if span.name == "commit"]


def check_answered(span, cluster, group_id):
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    assert span.attributes["server.address"] in (host, "localhost", "127.0.0.1")
    assert span.attributes["server.port"] == int(port)
    assert span.attributes["messaging.kafka.cluster.id"]
    assert span.attributes["messaging.consumer.group.name"] == group_id
    assert span.status.is_unset


def test_a_commit_is_in_the_trace_of_who_asked_for_it_and_says_who_answered(cluster, consumer_of, group_id):
    with kept_spans() as ended, consumer_of(enable_auto_commit=False) as consumer:
        with trace.get_tracer("users").start_as_current_span("mine") as mine:
            consumer.commit()
        (span,) = commits(ended)
        assert span.parent.span_id == mine.get_span_context().span_id
        check_answered(span, cluster, group_id)


def test_what_is_committed_without_being_asked_for_is_a_span_of_its_own(cluster, consumer_of, group_id):
    with kept_spans() as ended:
        with trace.get_tracer("users").start_as_current_span("mine"), consumer_of() as consumer:
            consumer.poll_batch(timeout_ms=100)  # what was in hand is done
        spans = commits(ended)
        assert cluster.committed(group_id) != {}
        assert spans
        for span in spans:
            assert span.parent is None
            check_answered(span, cluster, group_id)
