"""Trace contexts in record headers, read and written."""

import pytest
from fakes.spans import batch, context, made
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.producer.telemetry import TRACEPARENT_BYTES
from kafka_actors.telemetry.headers import links_of, with_context
from kafka_actors.telemetry.spans import (
    MOST_LINKS,
    parse,
    traceparent,
)

# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"nonsense",
        b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01",
        b"00-" + b"1" * 32 + b"-" + b"0" * 16 + b"-01",
        b"ff-" + b"1" * 32 + b"-" + b"1" * 16 + b"-01",
        b"00-" + b"A" * 32 + b"-" + b"1" * 16 + b"-01",
        b"00-" + b"1" * 32 + b"-" + b"1" * 16 + b"-01-more",
        b"\xff\xfe",
    ],
)
def test_what_is_no_traceparent_is_no_context(value):
    assert parse(value) is None
    assert links_of(batch([("traceparent", value)])) == []


def test_a_traceparent_is_read_as_it_was_written():
    assert traceparent(parse(context(7))) == context(7)
    assert parse(b"01-" + b"1" * 32 + b"-" + b"1" * 16 + b"-07-of-the-future").trace_flags == 3
    assert len(context(7)) + len("traceparent") == TRACEPARENT_BYTES


def test_links_are_to_each_context_once_and_to_a_spread_sample_of_many():
    few = batch(made(1), None, [("other", b"x"), *made(2)], made(1), [("traceparent", None)], [])
    assert sorted(traceparent(link.context) for link in links_of(few)) == [context(1), context(2)]
    many = links_of(batch(*(made(n) for n in range(1, 1001))))
    numbers = [link.context.span_id for link in many]
    assert len(numbers) == MOST_LINKS
    assert (min(numbers), max(numbers)) == (1, 993)
    assert links_of(batch(None, None)) == []
    assert links_of(batch(None).drop_columns(["headers"])) == []
    assert [link.context.span_id for link in links_of(few.slice(1, 2))] == [2]


pairs = st.tuples(st.sampled_from(["a", "traceparent", "b"]), st.none() | st.binary(max_size=4))


@given(st.lists(st.none() | st.lists(pairs, max_size=4), min_size=1, max_size=12), st.data())
def test_a_context_goes_into_the_headers_of_each_record_that_has_none(rows, data):
    whole = batch(*rows)
    start = data.draw(st.integers(0, len(rows) - 1))
    given_rows, sliced = rows[start:], whole.slice(start)
    found, had = with_context(sliced, context(9))
    read = [[(h["key"], h["value"]) for h in row] for row in found["headers"].to_pylist()]
    wanted = [
        list(row or []) if any(key == "traceparent" for key, _ in row or []) else [*(row or []), *made(9)]
        for row in given_rows
    ]
    assert read == wanted
    assert had == any(key == "traceparent" for row in given_rows for key, _ in row or [])
    assert found.drop_columns(["headers"]).equals(sliced.drop_columns(["headers"]))


def test_a_batch_without_headers_gets_some():
    found, had = with_context(batch(None, None).drop_columns(["headers"]), context(9))
    assert not had
    assert found["headers"].to_pylist() == [[{"key": "traceparent", "value": context(9).encode()}]] * 2
