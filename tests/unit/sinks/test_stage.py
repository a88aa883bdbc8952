"""Rows as JSON, columns as the keys of records, and several sinks that get the same rows."""

import datetime
import decimal

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from fakes.records import records

import kafka_actors as ka
from kafka_actors.errors import SinkError, StageError
from kafka_actors.pipeline.rows import rows_of
from kafka_actors.sinks import stage as stage_module
from kafka_actors.sinks.stage import OpenSinks, json_values, key_values


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array(["a", None]), [b"a", None]),
        (pa.array([7, None]), [b"7", None]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.array([b"\xff\xfe", None], pa.binary(2)), [b"\xff\xfe", None]),
        (pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None]),
        (pa.array([b"\xff", None], pa.binary_view()), [b"\xff", None]),
        (pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["a", None])), [None, b"a", None]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([b"\xff"])), [b"\xff", b"\xff"]),
        (pa.array([1, None], pa.timestamp("ms")), [b"1970-01-01 00:00:00.001000", None]),
        (pa.array([1000, None], pa.timestamp("ns", tz="UTC")), [b"1970-01-01 00:00:00.000001Z", None]),
        (pa.array([1], pa.timestamp("us", tz="Europe/Berlin")), [b"1970-01-01 00:00:00.000001Z"]),
    ],
    ids=[
        *("text", "numbers", "bytes", "fixed", "large", "view", "encoded", "encoded-bytes"),
        *("milliseconds", "nanoseconds", "zone"),
    ],
)
def test_keys_are_texts_or_bytes_and_null_is_no_key(column, keys):
    assert key_values(column).to_pylist() == keys


def test_nanoseconds_are_written_wherever_they_are_as_microseconds():
    """pyarrow gives those of pandas as objects of pandas, which no JSON encoder knows."""
    at = pd.Timestamp("2026-01-02T03:04:05.000006")
    kind = pa.struct([("l", pa.list_(pa.timestamp("ns"))), ("m", pa.map_(pa.string(), pa.timestamp("ns")))])
    batch = pa.RecordBatch.from_arrays([pa.array([{"l": [at], "m": {"a": at}}], kind)], names=["x"])
    text = "2026-01-02T03:04:05.000006"
    assert json_values(batch).to_pylist() == [
        b'{"x":{"l":["%b"],"m":{"a":"%b"}}}' % (text.encode(), text.encode())
    ]


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (pa.map_(pa.decimal128(5, 2), pa.int8()), [(decimal.Decimal("1.5"), 1)], {"1.50": 1}),
        (pa.map_(pa.bool_(), pa.int8()), [(True, 1)], {"true": 1}),
        (pa.list_(pa.map_(pa.bool_(), pa.timestamp("ns"))), [[(False, None)]], [{"false": None}]),
        (pa.duration("ns"), datetime.timedelta(seconds=1), "PT1S"),
        (pa.time64("ns"), datetime.time(1, 2, 3, 4), "01:02:03.000004"),
    ],
)
def test_what_is_written_is_json_whatever_the_type(kind, value, written):
    (made,) = json_values(pa.record_batch({"x": pa.array([value], kind)})).to_pylist()
    assert msgspec.json.decode(made) == {"x": written}


@pytest.mark.parametrize("name", ["größe", 'a"b', "a\\b", "\n"])
def test_a_column_may_have_any_name(name):
    (made,) = json_values(pa.record_batch({name: [1], "b": [{name: 2}]})).to_pylist()
    assert msgspec.json.decode(made) == {name: 1, "b": {name: 2}}


SOURCE = records([b"1", b"2", b"3", b"4"])
READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1").raw()


class Store:
    """A user's sink; `refuses` says which value, `fails` which method."""

    made = {}

    def __init__(self, name, refuses=None, fails=None):
        if fails == "__init__":
            raise OSError("no such table")
        self.refuses = refuses
        self.fails = fails
        self.seen = []
        Store.made[name] = self

    def write(self, batch):
        values = batch["value"].to_pylist()
        if self.refuses in values:
            raise ValueError("not taken")
        self.seen += values

    def flush(self):
        if self.fails == "flush":
            raise OSError("disk full")
        self.seen.append("flush")

    def close(self):
        self.seen.append("close")


def open_sinks(*options, on_error="fail", retries=0):
    pipeline = READ.on_error(on_error).dead_letters("dead")
    for name, more in zip("ab", options, strict=False):
        pipeline = pipeline.write(Store, fn_constructor_kwargs={"name": name, **more}, name=name)
    return OpenSinks(pipeline.check().sinks, pipeline.source, retries)


def test_a_row_that_one_sink_refuses_goes_to_the_others_once():
    sinks, failures = open_sinks({"refuses": b"2"}, {}, on_error="dead_letter"), []
    sinks.write(rows_of(SOURCE), SOURCE, failures)
    assert [(f.record, f.stage) for f in failures] == [(1, "a")]
    assert Store.made["a"].seen == [b"1", b"3", b"4"]
    assert Store.made["b"].seen == [b"1", b"2", b"3", b"4"]


def test_a_sink_that_fails_is_named_and_tried_again_alone(monkeypatch):
    monkeypatch.setattr(stage_module.time, "sleep", lambda seconds: None)
    sinks = open_sinks({}, {"refuses": b"2"}, retries=2)
    with pytest.raises(StageError, match="stage b failed on orders-3 offsets 100-103 after 3 attempts"):
        sinks.write(rows_of(SOURCE), SOURCE, [])
    assert Store.made["a"].seen == [b"1", b"2", b"3", b"4"], "not three times"


def test_where_the_caller_counts_attempts_a_sink_is_not_tried_again_before_any_has_rows(monkeypatch):
    naps, seen, refusing = [], [], {"first"}
    monkeypatch.setattr(stage_module.time, "sleep", naps.append)

    def sink(name):
        def write(batch):
            seen.append(name)
            if name in refusing:
                raise OSError("no room")

        return write

    pipeline = READ.write(sink("first"), name="first").write(sink("second"), name="second", on_error="skip")
    sinks = OpenSinks(pipeline.check().sinks, pipeline.source, 2)
    for attempt in (1, 2):
        with pytest.raises(OSError, match="no room") as raised:
            sinks.write(rows_of(SOURCE), SOURCE, [], attempt)
        assert raised.value.__notes__ == ["raised in stage first"]
    with pytest.raises(StageError, match=r"stage first failed .* after 3 attempts"):
        sinks.write(rows_of(SOURCE), SOURCE, [], 3)
    assert (seen, naps) == (["first"] * 3, [])
    refusing.symmetric_difference_update({"first", "second"})
    seen.clear()
    sinks.write(rows_of(SOURCE).slice(0, 1), SOURCE, failures := [], 1)
    assert seen == ["first", "second", "second", "second"], "it alone, because the first one has the rows"
    assert [f.stage for f in failures] == ["second"]
    assert len(naps) == 2


def test_all_are_flushed_and_closed_and_a_flush_that_fails_names_its_sink():
    sinks = open_sinks({}, {"fails": "flush"})
    with pytest.raises(SinkError, match=r"^b: OSError: disk full"):
        sinks.flush()
    sinks.close()
    assert Store.made["a"].seen == ["flush", "close"]
    assert Store.made["b"].seen == ["close"]


def test_where_one_cannot_be_opened_it_is_named_and_those_before_it_are_closed():
    with pytest.raises(OSError, match="no such table") as raised:
        open_sinks({}, {"fails": "__init__"})
    assert raised.value.__notes__[-1] == "raised by the sink b"
    assert Store.made["a"].seen == ["close"]
