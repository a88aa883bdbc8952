"""Results and failed records of a worker: written in order, safe before their offsets may be committed."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from fakes.records import records
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.base.callables import described
from kafka_actors.errors import ConfigError, SinkError, UsageError
from kafka_actors.job.worker.outputs import LACKING_S, Outputs, OutputsSpec
from kafka_actors.job.worker.user_function import CallFailed, FunctionSpec, UserFunction
from kafka_actors.sinks import Origin, as_sink, dead_letters


class Notes:
    """A sink that notes what happens to it; `fails` says which method does."""

    def __init__(self, fails=""):
        self.fails = fails
        self.seen = []

    def open(self, connection):
        return self

    def write(self, batch, origin):
        self._note("write", origin, batch.num_rows)

    def flush(self):
        self._note("flush")

    def close(self):
        self._note("close")

    def _note(self, what, *more):
        if what == self.fails:
            raise OSError("disk full")
        self.seen.append((what, *more))


def processor(target, sink=None, unit="batch"):
    made = UserFunction(FunctionSpec(target, unit, 0, "fail", OutputsSpec(() if sink is None else (sink,))))
    made.make()
    return made


BATCH = records([b"a", b"b", b"c"])
WHOLE = Origin("orders", 3, 100, 102)


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (None, []),
        (BATCH, [3]),
        ([BATCH, BATCH.slice(1)], [3, 2]),
        (pa.Table.from_batches([BATCH, BATCH]), [6]),
        ((part for part in (BATCH, BATCH.slice(0, 0))), [3]),
    ],
)
def test_what_process_returns_is_written_with_the_offsets_it_came_from(result, rows):
    sink = Notes()
    processor(lambda batch: result, sink).call(BATCH)
    assert sink.seen == [("write", WHOLE, count) for count in rows]


def test_an_async_function_and_messages_write_too():
    async def later(batch):
        return batch

    sink = Notes()
    asyncio.run(processor(later, sink).call_async(BATCH))
    processor(lambda m: BATCH.slice(0, 1) if m.offset == 101 else None, sink, unit="message").call(BATCH)
    assert sink.seen == [("write", WHOLE, 3), ("write", Origin("orders", 3, 101, 101), 1)]


def test_a_result_of_another_type_and_a_sink_that_refuses_are_errors_of_the_call():
    with pytest.raises(CallFailed) as failed:
        processor(lambda batch: 7, Notes()).call(BATCH)
    assert "returned an int" in str(failed.value.cause)
    with pytest.raises(CallFailed) as failed:
        processor(lambda batch: batch, Notes("write")).call(BATCH)
    assert (failed.value.first, failed.value.last, failed.value.final) == (100, 102, False)


def test_without_a_sink_a_result_is_an_error_that_no_retry_mends():
    with pytest.raises(CallFailed, match="has no sink=") as failed:
        processor(lambda batch: batch).call(BATCH)
    assert failed.value.final
    assert type(failed.value.cause) is TypeError


@pytest.mark.parametrize("unit", ["batch", "message"])
def test_a_process_that_returns_none_for_each_batch_beside_a_sink_is_told_of_once(unit, caplog):
    def said():
        return [r.getMessage() for r in caplog.records if "has returned None" in r.getMessage()]

    made = processor(lambda batch: None, Notes(), unit=unit)
    for _ in range(12):
        made.call(BATCH)
    made.close()
    assert len(said()) == 1
    assert said()[0].startswith(("process has", "process_message has"))
    for silent in (
        processor(lambda batch: None, unit=unit),
        processor(lambda batch: None, Notes(), unit=unit),
    ):
        silent.close()
    assert len(said()) == 1


def test_flush_is_for_what_was_written_since_the_last_one():
    sink = Notes()
    made = processor(lambda batch: batch, sink)
    assert made.flushes
    made.flush()
    assert sink.seen == []
    made.call(BATCH)
    made.flush()
    made.flush()
    assert [what for what, *_ in sink.seen] == ["write", "flush"]
    made.close()
    assert sink.seen[-1] == ("close",)


def test_after_a_flush_that_failed_nothing_is_safe_any_more():
    sink = Notes("flush")
    made = processor(lambda batch: batch, sink)
    made.call(BATCH)
    with pytest.raises(SinkError, match="OSError: disk full; the offsets of its records are not committed"):
        made.flush()
    sink.fails = ""
    with pytest.raises(SinkError):
        made.flush()


def test_each_of_several_sinks_gets_all_results_and_one_that_fails_is_named():
    first, second = Notes(), Notes("write")
    made = UserFunction(FunctionSpec(lambda batch: batch, "batch", 0, "fail", OutputsSpec((first, second))))
    made.make()
    with pytest.raises(CallFailed) as failed:
        made.call(BATCH)
    assert described(failed.value.cause) == f"OSError: disk full (raised by the sink {second!r})"
    second.fails = ""
    made.call(BATCH)  # the call is made again, and all sinks get its result
    made.flush()
    assert [what for what, *_ in first.seen] == ["write", "write", "flush"]
    assert [what for what, *_ in second.seen] == ["write", "flush"]
    made.close()
    assert first.seen[-1] == second.seen[-1] == ("close",)


class SlowFlush(Notes):
    """A sink whose flush lasts until the test lets it end."""

    def __init__(self, *, beside):
        super().__init__()
        self.flushes_beside_writes = beside
        self.flushing, self.may_end = threading.Event(), threading.Event()

    def flush(self):
        self.flushing.set()
        assert self.may_end.wait(slow_s(10))
        super().flush()


def test_results_are_written_while_a_producer_waits_for_brokers():
    """An async function's calls share the thread that writes: it would stand still for all of them."""
    sink = SlowFlush(beside=True)
    made = processor(lambda batch: batch, sink)
    made.call(BATCH)
    with ThreadPoolExecutor() as pool:
        flushes = [pool.submit(made.flush)]
        assert sink.flushing.wait(slow_s(10))
        made.call(BATCH)  # would wait for ever
        flushes.append(pool.submit(made.flush))
        assert not flushes[1].done()
        sink.may_end.set()
        for each in flushes:
            each.result(slow_s(10))
    assert [what for what, *_ in sink.seen] == ["write", "write", "flush", "flush"]
    made.flush()
    assert len(sink.seen) == 4, "nothing was written since"


def test_a_second_flush_waits_for_the_first_one_though_nothing_was_written_since():
    sink = SlowFlush(beside=True)
    made = processor(lambda batch: batch, sink)
    made.call(BATCH)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(made.flush)
        assert sink.flushing.wait(slow_s(10))
        second = pool.submit(made.flush)
        with pytest.raises(TimeoutError):
            second.result(0.05)
        sink.may_end.set()
        first.result(slow_s(10))
        second.result(slow_s(10))


def test_other_sinks_are_written_to_and_flushed_in_turn():
    sink = SlowFlush(beside=False)
    made = processor(lambda batch: batch, sink)
    made.call(BATCH)
    with ThreadPoolExecutor() as pool:
        flush = pool.submit(made.flush)
        assert sink.flushing.wait(slow_s(10))
        write = pool.submit(made.call, BATCH)
        with pytest.raises(TimeoutError):
            write.result(0.05)
        sink.may_end.set()
        flush.result(slow_s(10))
        write.result(slow_s(10))
    assert [what for what, *_ in sink.seen] == ["write", "flush", "write"]


def test_where_one_of_several_sinks_cannot_be_flushed_nothing_is_safe():
    first, second = Notes(), Notes("flush")
    made = UserFunction(FunctionSpec(lambda batch: batch, "batch", 0, "fail", OutputsSpec((first, second))))
    made.make()
    made.call(BATCH)
    for _ in range(2):
        with pytest.raises(SinkError) as failed:
            made.flush()
        assert failed.value.sink == repr(second)
    assert [what for what, *_ in first.seen] == ["write", "flush"]


def test_a_sink_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "file").touch()
    outputs = Outputs(OutputsSpec((ka.ParquetSink(str(tmp_path / "file")),)), None)
    with pytest.raises(OSError, match="file") as raised:
        outputs.open()
    assert raised.value.__notes__ == [f"raised by the sink <ParquetSink {tmp_path}/file>"]


class Own:
    flushed = 0

    def __call__(self, batch):
        return None

    def flush(self):
        Own.flushed += 1


def test_a_class_with_a_flush_of_its_own_is_asked_too():
    Own.flushed = 0
    made = processor(Own)
    assert made.flushes
    made.flush()
    assert Own.flushed == 1
    assert not processor(lambda batch: None).flushes


def test_records_for_a_retry_topic_are_flushed_before_their_offsets_are_committed(monkeypatch):
    tiers = ka.RetryTopics("r", ("1s", "1m"), "dead").tiers("orders", ordering="key")

    class Sends:
        """In place of a producer."""

        sent, flushed, full = [], 0, False

        def send_batch(self, batch, topic):
            self.sent += [(topic, row["partition"], row["value"]) for row in batch.to_pylist()]
            return "the outcome"

        def flush(self):
            if self.full:
                raise OSError("disk full")
            self.flushed += 1

        def close(self, timeout_ms):
            self.closed = timeout_ms

    producer = Sends()
    monkeypatch.setattr(dead_letters, "producer_of", lambda *_: producer)
    monkeypatch.setattr(dead_letters, "producer_to", lambda *_: Sends())
    outputs = Outputs(OutputsSpec((), "dead", tiers=tiers), None)
    outputs.open()
    assert outputs.any
    assert outputs.retry_later(BATCH.slice(0, 2), ["a", "b"], 2, [1, 1], [5, 5]) == "the outcome"
    assert producer.sent == [("r-1m", 3, b"a"), ("r-1m", 3, b"b")]
    outputs.flush()
    outputs.flush()
    assert producer.flushed == 1
    outputs.retry_later(BATCH.slice(0, 1), ["a"], 1, [1], [5])
    producer.full = True
    with pytest.raises(SinkError, match="disk full"):
        outputs.flush()
    outputs.close()
    assert producer.closed


def test_a_partition_that_a_retry_topic_lacks_is_asked_for_now_and_then_and_not_with_each_record(monkeypatch):
    """The producer asks a broker, while all other writes wait for their turn."""
    tiers = ka.RetryTopics("r", ("1s",), "dead", keep_order=False).tiers("orders", ordering="key")
    now, asked, there = 0.0, [], False

    class Lacks:
        def send_batch(self, batch, topic):
            asked.append(now)
            if not there:
                raise UsageError("r-1s has no partition 3")
            return "the outcome"

    monkeypatch.setattr(dead_letters, "producer_of", lambda *_: Lacks())
    monkeypatch.setattr(dead_letters, "producer_to", lambda *_: Lacks())
    outputs = Outputs(OutputsSpec((), "dead", tiers=tiers), None, lambda: now)
    outputs.open()

    def tried():
        return outputs.retry_later(BATCH.slice(0, 1), ["a"], 1, [1], [5])

    assert [tried(), tried()] == [None, None]
    now, there = LACKING_S - 0.1, True
    assert tried() is None
    now = LACKING_S
    assert tried() == "the outcome"
    assert asked == [0.0, LACKING_S]


def test_outputs_without_anything_do_nothing():
    outputs = Outputs(OutputsSpec(), None)
    outputs.open()
    outputs.flush()
    outputs.close()


class Later:
    def write(self, batch):
        """Takes it."""

    async def flush(self):
        """Nobody would await it."""


async def later(batch):
    """Nobody would await it."""


class Caller:
    async def __call__(self, batch):
        """Nobody would await it."""


class Table:
    def __init__(self, url):
        self.url = url

    def write(self, batch):
        """Takes it."""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_error": "dead_letter"}, "dead_letter_topic: is missing"),
        ({"dead_letter_topic": "dead"}, "without on_error='dead_letter'"),
        ({"on_error": "dead_letter", "dead_letter_topic": "no spaces"}, "dead_letter_topic: has 'no spaces'"),
        ({"on_error": "ignore"}, "on_error: is 'ignore': accepts 'fail' or 'skip' or 'dead_letter'"),
        ({"sink": 7}, "sink: is 7: accepts KafkaSink"),
        ({"sink": [ka.KafkaSink("x"), 7]}, "sink: is 7: accepts KafkaSink"),
        ({"sink": [ka.ParquetSink("/x"), ka.KafkaSink("t")]}, "sink: is 't', which is read here"),
        ({"sink": object}, "sink: is the class object, which has no write"),
        ({"sink": Later}, "sink: is the class Later, whose flush is async: make it a plain method"),
        ({"sink": later}, "sink: is async: make it a plain function"),
        ({"sink": Caller()}, "sink: is async: make it a plain function"),
        (
            {"sink": Table},
            "sink: is the class Table, which is made without arguments in each worker: .*'url'",
        ),
    ],
)
def test_wrong_definitions_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        ka.Job(topics="t", group_id="g", bootstrap_servers="b:1", process=print, **options)


def lazily(batch):
    return later(batch)


class Lazy:
    def write(self, batch):
        return later(batch)


@pytest.mark.parametrize("sink", [lazily, Lazy])
@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
def test_a_sink_that_returns_what_nobody_awaits_has_written_nothing(sink):
    with pytest.raises((CallFailed, SinkError), match="coroutine, which nobody awaits: make it plain"):
        processor(lambda batch: batch, as_sink(sink)).call(BATCH)


def test_a_result_without_a_sink_is_named_by_its_type():
    for result, kind in ((7, "an int"), (iter(()), "a tuple_iterator")):
        with pytest.raises(CallFailed) as raised:
            processor(lambda batch, result=result: result).call(BATCH)
        assert str(raised.value.cause).startswith(f"process returned {kind}, and the job has no sink=")


def test_sinks_check_their_options_when_they_are_made():
    assert repr(ka.KafkaSink("scored", linger_ms=1)) == "<KafkaSink to scored>"
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        ka.KafkaSink("scored", lingr_ms=1)
    with pytest.raises(ConfigError, match="compression: is 'zip'"):
        ka.ParquetSink("/tmp/x", compression="zip")
    with pytest.raises(ConfigError, match="topic: has 'large orders': a topic's name"):
        ka.KafkaSink("large orders")


class Panic(BaseException):
    """What libraries in Rust raise."""


ODD = (SystemExit(3), StopIteration(), Panic("out of bounds"))


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("method", ["__init__", "flush", "close"])
def test_what_no_event_loop_would_pass_on_comes_as_an_error(method, odd):
    def fails(self):
        raise odd

    made = type("Made", (), {"__call__": lambda self, batch: None, method: fails})
    unmade = UserFunction(FunctionSpec(made, "batch", 0, "fail", OutputsSpec()))

    def live():
        unmade.make()
        unmade.flush()
        unmade.close()

    with pytest.raises((RuntimeError, SinkError), match=type(odd).__name__) as raised:
        live()
    assert raised.value.__cause__ is odd


def test_an_async_flush_that_exits_does_not_end_the_loop_of_the_calls():
    class Leaving:
        def __call__(self, batch):
            pass

        async def flush(self):
            raise SystemExit(3)

    with asyncio.Runner() as runner, pytest.raises(SinkError, match=r"Leaving.*SystemExit: 3"):
        processor(Leaving).flush(runner.run)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_whatever_a_call_raises_is_a_failure_of_the_call(odd):
    def call(batch):
        raise odd

    async def later(batch):
        raise odd

    with pytest.raises(CallFailed) as raised:
        processor(call).call(BATCH)
    assert raised.value.cause is odd
    with pytest.raises(CallFailed) as raised:
        asyncio.run(processor(later).call_async(BATCH))
    assert type(raised.value.cause) in (type(odd), RuntimeError), "a coroutine makes that of a StopIteration"
