"""Functions and classes of users as sinks: what is taken, what is refused, and what they are called with."""

import functools
import logging

import pyarrow as pa
import pytest
from fakes.errors import NoText
from fakes.records import records

from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConfigError, SinkError
from kafka_actors.sinks import KafkaSink, Origin, ParquetSink, as_sink, close_all, origin_of
from kafka_actors.sinks.sink import UserSink, as_sinks, flush_all

BATCH = pa.record_batch({"n": [1, 2]})
ORIGIN = Origin("orders", 3, 100, 101)
CONNECTION = ClientConfig(bootstrap_servers=("a:1",))


class Store:
    """A user's sink, which keeps what is called."""

    def __init__(self):
        self.calls = []

    def write(self, batch):
        self.calls.append(("write", batch.num_rows))

    def flush(self):
        self.calls.append(("flush",))


def test_the_origin_of_a_batch_is_its_first_and_last_record():
    assert origin_of(records([b"a", b"b"])) == ORIGIN
    assert origin_of(records([b"a"], partition=0, first=7)) == Origin("orders", 0, 7, 7)
    assert ORIGIN.offsets.tolist() == [100, 101]


@pytest.mark.parametrize("rows", [[0, 4, 2], [2, 0, 4], [4, 2, 0], [1, 0, 3, 4]])
def test_the_origin_of_records_that_come_in_another_order_has_all_offsets(rows):
    """Records of a retry topic do: they are there in the order in which they failed. Two origins with one text would give files of different
    records one name."""
    batch = records([b"a", b"b", b"c", b"d", b"e"]).take(pa.array(rows))
    assert origin_of(batch).offsets.tolist() == batch["offset"].to_pylist()


def test_the_origin_of_a_batch_with_gaps_has_all_offsets():
    origin = origin_of(records([b"a", b"b", b"c", b"d"]).take(pa.array([0, 2, 3])))
    assert origin[:4] == ("orders", 3, 100, 103)
    assert origin.offsets.tolist() == [100, 102, 103]
    assert origin != Origin("orders", 3, 100, 103)


def test_rows_that_belong_to_no_record_have_an_origin_without_offsets():
    nothing = {
        name: pa.nulls(2, records([b"a"]).schema.field(name).type)
        for name in ("topic", "partition", "offset")
    }
    assert origin_of(pa.record_batch(nothing)) == Origin(None, None, None, None)


def test_a_function_is_called_with_each_batch():
    taken = []
    writer = as_sink(taken.append).open(CONNECTION)
    writer.write(BATCH, ORIGIN)
    writer.flush()
    writer.close()
    assert taken == [BATCH]


def test_an_object_of_a_class_is_made_for_each_writer_and_close_may_be_missing():
    sink = as_sink(Store)
    one, other = sink.open(CONNECTION), sink.open(CONNECTION)
    one.write(BATCH, ORIGIN)
    one.flush()
    one.close()
    assert one._made.calls == [("write", 2), ("flush",)]
    assert other._made.calls == []


def test_a_class_gets_the_arguments_of_its_constructor():
    class Named(Store):
        def __init__(self, name):
            super().__init__()
            self.name = name

    assert UserSink(Named, {"name": "a"}).open(CONNECTION)._made.name == "a"


def test_a_sink_stays_as_it_is():
    for sink in (KafkaSink("scored"), ParquetSink("/out")):
        assert as_sink(sink) is sink


def test_a_list_is_several_sinks():
    topic, files = KafkaSink("scored"), ParquetSink("/out")
    assert as_sinks(None) == ()
    assert as_sinks(topic) == (topic,)
    assert as_sinks([topic, files]) == (topic, files)
    first, *_ = as_sinks((Store, files))
    assert first.target is Store
    with pytest.raises(ConfigError, match="sink: is an empty list: leave it out"):
        as_sinks([])
    with pytest.raises(ConfigError, match="sink: writes to '/out' twice: each ParquetSink needs a directory"):
        as_sinks([files, topic, ParquetSink("file:///out/")])
    with pytest.raises(ConfigError, match=r"^sink: is 5: accepts"):
        as_sinks([topic, 5])


async def _later(batch):
    pass


def _yields(batch):
    yield


async def _yields_later(batch):
    yield


class _YieldingWrite(Store):
    def write(self, batch):
        yield


class _NoWrite:
    def flush(self):
        pass


class _AsyncFlush(Store):
    async def flush(self):
        pass


class _NeedsArguments(Store):
    def __init__(self, path):
        super().__init__()


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (5, r"^sink: is 5: accepts KafkaSink\(…\), ParquetSink\(…\), a function or a class with write$"),
        (_later, r"^sink: is async: make it a plain function$"),
        (_yields, r"^sink: is a generator: make it a plain function$"),
        (functools.partial(_yields), r"^sink: is a generator: make it a plain function$"),
        (_yields_later, r"^sink: is a generator: make it a plain function$"),
        (
            _YieldingWrite,
            r"^sink: is the class _YieldingWrite, whose write is a generator: make it a plain method$",
        ),
        (_NoWrite, r"^sink: is the class _NoWrite, which has no write\(self, batch\)$"),
        (_AsyncFlush, r"^sink: is the class _AsyncFlush, whose flush is async: make it a plain method$"),
        (_NeedsArguments, r"^sink: is the class _NeedsArguments, which is made without arguments .*'path'$"),
    ],
)
def test_what_can_not_be_a_sink_is_refused(sink, said):
    with pytest.raises(ConfigError, match=said):
        as_sink(sink)


class _Awaitable:
    def __await__(self):
        return iter(())


def test_a_function_whose_result_nobody_awaits_has_written_nothing():
    writer = as_sink(lambda batch: _Awaitable()).open(CONNECTION)
    with pytest.raises(TypeError, match="a sink returned _Awaitable, which nobody awaits"):
        writer.write(BATCH, ORIGIN)
    for function in (_yields, _yields_later):
        writer = as_sink(lambda batch, function=function: function(batch)).open(CONNECTION)
        with pytest.raises(
            TypeError, match=r"a sink returned \w*generator, which nobody runs: make it plain"
        ):
            writer.write(BATCH, ORIGIN)


def test_the_first_flush_that_fails_names_its_sink_and_is_the_last_one():
    flushed = []

    class Flushes:
        def __init__(self, error=None):
            self.error = error

        def flush(self):
            if self.error is not None:
                raise self.error
            flushed.append(self)

    sound, full, third = Flushes(), Flushes(OSError("disk full")), Flushes()
    flush_all([("a", sound), ("c", third)])
    with pytest.raises(
        SinkError, match=r"^b: OSError: disk full; the offsets of its records are not"
    ) as caught:
        flush_all([("a", sound), ("b", full), ("c", third)])
    assert caught.value.sink == "b"
    assert flushed == [sound, third, sound]
    with pytest.raises(SinkError, match=r"^b: NoText; the offsets"):
        flush_all([("b", Flushes(NoText()))])


def test_all_are_closed_though_one_fails(caplog):
    closed = []

    class Closes:
        def __init__(self, error=None):
            self.error = error

        def close(self):
            closed.append(self)
            if self.error is not None:
                raise self.error

    first, last = Closes(OSError("gone")), Closes()
    with caplog.at_level(logging.WARNING):
        close_all(first, None, last)
    assert closed == [first, last]
    assert [r.getMessage().partition(" could ")[2] for r in caplog.records] == [
        "not be closed: OSError: gone"
    ]
