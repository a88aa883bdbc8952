"""What a worker runs: stages, then the sink and the dead letters; all of it safe when `flush` has returned."""

import asyncio
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.loop import turns_until
from fakes.records import records

import kafka_actors as ka
from kafka_actors.base.callables import constructed, described
from kafka_actors.errors import ConfigError, JobFailed, KafkaTimeoutError, SinkError, StageError, UsageError
from kafka_actors.events import RecordsDeadLettered, RecordsSkipped
from kafka_actors.job.worker.user_function import CallFailed, FunctionSpec, UserFunction
from kafka_actors.pipeline.bound_pipeline import LiveLine
from kafka_actors.pipeline.engines import engine
from kafka_actors.ray.engine import pipeline_function as module
from kafka_actors.ray.engine.on_ray import OnRay
from kafka_actors.ray.engine.pipeline_function import PipelinePlan, function_of
from kafka_actors.sinks import stage as stage_module
from kafka_actors.sinks import transactional
from kafka_actors.sinks.sink import TransactionBroken
from kafka_actors.sinks.transactional import ProducerSlot

READ = ka.Pipeline.read_kafka("orders", group_id="revenue", bootstrap_servers="localhost:9092")
JSON = READ.decode_json("id BIGINT, country STRING")
SOURCE = records(
    [b'{"id": %d, "country": "c%d"}' % (n, n % 2) for n in range(6)], keys=[b"k%d" % n for n in range(6)]
)


class FakeDeadLetters:
    """In place of `DeadLetters`."""

    made = None

    def __init__(self, config, topic, group, slot=None):
        self.topic = topic
        self.group = group
        self.config = config
        self.seen = []
        FakeDeadLetters.made = self

    def write(self, rows, stages, reasons):
        self.seen.append((rows["key"].to_pylist(), list(stages), list(reasons)))

    def flush(self):
        self.seen.append("flush")

    def close(self):
        self.seen.append("close")


@pytest.fixture(autouse=True)
def _no_producer(monkeypatch):
    monkeypatch.setattr(module, "DeadLetters", FakeDeadLetters)


def process(pipeline, events=None):
    found = [] if events is None else events
    return function_of(PipelinePlan(pipeline, "revenue"))(found.append)


def failing(*ids):
    def call(batch):
        if found := [i for i in batch["id"].to_pylist() if i in ids]:
            raise ValueError(f"no good: {found}")
        return batch

    return call


def test_rows_reach_the_sink_with_the_hidden_column_if_it_asks():
    seen = []
    process(JSON.filter(pc.field("id") > 3).write(seen.append))(SOURCE)
    process(JSON.filter(pc.field("id") > 3).write(seen.append, kafka=True))(SOURCE)
    process(JSON.filter(pc.field("id") > 99).write(seen.append))(SOURCE)
    plain, hidden = seen
    assert plain.to_pydict() == {"id": [4, 5], "country": ["c0", "c1"]}
    assert hidden["_kafka"].field("offset").to_pylist() == [104, 105]


def test_failed_records_are_told_of_once_a_stage_and_dead_letters_sent():
    events, seen = [], []
    pipeline = (
        JSON.map_batches(failing(1), schema="id BIGINT, country STRING", name="one", on_error="skip")
        .map_batches(failing(2, 4), schema="id BIGINT, country STRING", name="two", on_error="dead_letter")
        .write(lambda batch: seen.extend(batch["id"].to_pylist()))
        .on_error("fail", retries=0)
        .dead_letters("dead", linger_ms=0)
    )
    process(pipeline, events)(SOURCE)
    assert seen == [0, 3, 5]
    assert FakeDeadLetters.made.seen == [
        ([b"k2", b"k4"], ["two", "two"], ["ValueError: no good: [2]", "ValueError: no good: [4]"])
    ]
    assert (FakeDeadLetters.made.group, FakeDeadLetters.made.config.linger_ms) == ("revenue", 0)
    assert events == [
        RecordsSkipped("orders", 3, 101, 101, "stage one: 1 records, the first: ValueError: no good: [1]"),
        RecordsDeadLettered(
            "orders", 3, 102, 104, 2, "dead", "stage two: 2 records, the first: ValueError: no good: [2]"
        ),
    ]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_worker_that_counts_attempts_gets_an_error_before_the_last_and_then_what_the_policies_say(kind):
    good, seen, events = failing(1), [], []

    async def awaited(batch):
        return good(batch)

    pipeline = (
        JSON.map_batches(
            awaited if kind == "async" else good,
            schema="id BIGINT, country STRING",
            name="score",
            on_error="skip",
        )
        .write(lambda batch: seen.extend(batch["id"].to_pylist()))
        .on_error("fail", retries=1)
    )
    function = UserFunction(FunctionSpec(function_of(PipelinePlan(pipeline, "g")), "batch", 1, "fail"))
    function.make()
    function._made.__dict__.get("_function", function._made)._events = events.append

    def call(attempt):
        if kind == "async":
            return asyncio.run(function.call_async(SOURCE, attempt))
        return function.call(SOURCE, attempt)

    with pytest.raises(CallFailed) as raised:
        call(1)
    assert described(raised.value.cause) == "ValueError: no good: [1] (raised in stage score)"
    assert not raised.value.final
    assert (seen, events) == ([], [])
    call(2)
    assert seen == [0, 2, 3, 4, 5]
    assert [type(event) for event in events] == [RecordsSkipped]


def test_after_a_stages_own_policy_no_further_attempt_is_made():
    pipeline = JSON.map_batches(failing(1), schema="id BIGINT, country STRING").write(print)
    function = UserFunction(
        FunctionSpec(function_of(PipelinePlan(pipeline.on_error("fail", retries=0), "g")), "batch", 0, "fail")
    )
    function.make()
    with pytest.raises(CallFailed) as raised:
        function.call(SOURCE, 1)
    assert isinstance(raised.value.cause, StageError)
    assert raised.value.final


def test_batches_that_overtake_each_other_are_in_one_file(tmp_path):
    pipeline = READ.raw().write_parquet(str(tmp_path))
    plan = PipelinePlan(pipeline, "g", by_partition=False)
    function = function_of(plan)(print)
    for first in (3, 0):
        function(SOURCE.slice(first, 3))
    function.flush()
    assert len(list(tmp_path.iterdir())) == 1
    assert function_of(PipelinePlan(pipeline, "g")).bound.by_partition


def test_a_sink_has_its_policy_too():
    def refuse(batch):
        if 3 in batch["id"].to_pylist():
            raise OSError("no room")

    pipeline = JSON.write(refuse, on_error="dead_letter").on_error("fail", retries=0).dead_letters("dead")
    process(pipeline)(SOURCE)
    assert [keys for keys, _, _ in FakeDeadLetters.made.seen] == [[b"k3"]]
    with pytest.raises(StageError, match=r"stage write\(refuse\) failed on orders-3 offsets 100-105"):
        process(JSON.write(refuse).on_error("fail", retries=0))(SOURCE)


def test_calls_of_an_async_pipeline_overlap_and_each_has_its_own_rows():
    begun, seen, order = [], [], []

    class Lookup:
        async def __call__(self, batch):
            begun.append(batch["id"].to_pylist())
            await turns_until(lambda: len(begun) >= 2)
            return failing(1)(batch)

        async def close(self):
            order.append("closed")

    pipeline = (
        JSON.map_batches(Lookup, schema="id BIGINT, country STRING", name="look", on_error="dead_letter")
        .filter(pc.field("id") != 5)
        .write(lambda batch: seen.extend(batch["id"].to_pylist()))
        .on_error("fail", retries=0)
        .dead_letters("dead")
    )
    events = []

    async def both():
        made = process(pipeline, events)
        await asyncio.gather(made(SOURCE.slice(0, 3)), made(SOURCE.slice(3)))
        made.flush()
        await made.close()

    asyncio.run(both())
    assert begun[:2] == [[0, 1, 2], [3, 4, 5]], "the second call began while the first was under way"
    assert sorted(seen) == [0, 2, 3, 4]
    assert FakeDeadLetters.made.seen[0] == ([b"k1"], ["look"], ["ValueError: no good: [1]"])
    assert FakeDeadLetters.made.seen[1:] == ["flush", "close"]
    assert [type(event) for event in events] == [RecordsDeadLettered]
    assert order == ["closed"]


def test_an_async_pipeline_is_an_async_job_whose_failure_names_the_stage():
    async def no(batch):
        raise ValueError("no")

    pipeline = JSON.map_batches(no, schema="id BIGINT").write(print).on_error("fail", retries=0)
    assert pipeline.on_ray().job.plan().spec.is_async
    assert not JSON.write(print).on_ray().job.plan().spec.is_async
    with pytest.raises(StageError, match=r"stage map_batches\(no\) failed on orders-3 offsets 100-105"):
        asyncio.run(process(pipeline)(SOURCE))


class Sink:
    made = None

    def __init__(self, where):
        self.where = where
        self.seen = []
        Sink.made = self

    def write(self, batch):
        self.seen.append(batch.num_rows)

    def flush(self):
        if self.where == "full":
            raise OSError("disk full")
        self.seen.append("flush")

    def close(self):
        self.seen.append("close")


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_in_a_transaction_no_policy_of_a_sink_writes_rows_twice(monkeypatch, policy):
    """After an error that leaves open which rows are on their way a second try would write them again, in the same transaction."""
    monkeypatch.setattr(transactional, "check_target", lambda *target: None)
    sent = []

    class Full:
        failure = None

        def send_batch(self, batch, topic):
            sent.append(batch.num_rows)
            raise KafkaTimeoutError("no room for the rest")

    slot, events = ProducerSlot(), []
    slot.producer = Full()
    pipeline = JSON.write_kafka("scored", on_error=policy)
    results = function_of(PipelinePlan(pipeline, "revenue"))(events.append, slot)(SOURCE)
    with pytest.raises(TransactionBroken, match="no room for the rest"):
        results.put_out()
    assert sent == [6]
    assert events == []


def test_a_class_as_a_sink_is_made_flushed_and_closed():
    made = process(JSON.write(Sink, fn_constructor_kwargs={"where": "here"}))
    made.flush()
    made(SOURCE)
    made.flush()
    made.flush()
    made.close()
    assert Sink.made.seen == [6, "flush", "close"]


def test_a_flush_that_fails_names_the_sink():
    made = process(JSON.write(Sink, fn_constructor_kwargs={"where": "full"}))
    made(SOURCE)
    with pytest.raises(SinkError, match=r"^write\(Sink\): OSError: disk full; the offsets"):
        made.flush()


def test_each_of_two_sinks_has_its_columns_policy_and_retries():
    seen, offsets = [], []

    def refuse(batch):
        if 3 in batch["id"].to_pylist():
            raise OSError("no room")
        seen.extend(batch["id"].to_pylist())

    events = []
    pipeline = (
        JSON.write(refuse, on_error="skip")
        .write(lambda batch: offsets.extend(batch["_kafka"].field("offset").to_pylist()), kafka=True)
        .on_error("fail", retries=0)
    )
    process(pipeline, events)(SOURCE)
    assert seen == [0, 1, 2, 4, 5]
    assert offsets == [100, 101, 102, 103, 104, 105]
    assert [(type(event), event.first_offset) for event in events] == [(RecordsSkipped, 103)]


@pytest.mark.parametrize("full", ["first", "second"])
def test_both_of_two_sinks_are_flushed_and_the_one_that_fails_is_named(full):
    pipeline = JSON
    for name in ("first", "second"):
        where = {"where": "full" if name == full else "here"}
        pipeline = pipeline.write(Sink, fn_constructor_kwargs=where, name=name)
    made = process(pipeline)
    made(SOURCE)
    for _ in range(2):
        with pytest.raises(SinkError, match=rf"^{full}: OSError: disk full"):
            made.flush()


@pytest.mark.parametrize(
    ("pipeline", "keys", "values"),
    [
        (JSON.write_kafka("x"), [b"k0", b"k1"], [b'{"id":0,"country":"c0"}', b'{"id":1,"country":"c1"}']),
        (
            JSON.with_key("country").write_kafka("x"),
            [b"c0", b"c1"],
            [b'{"id":0,"country":"c0"}', b'{"id":1,"country":"c1"}'],
        ),
        (JSON.select("id").with_key("id").write_kafka("x"), [b"0", b"1"], [b'{"id":0}', b'{"id":1}']),
        (
            JSON.select("id").with_key(pc.field("_kafka", "offset")).write_kafka("x"),
            [b"100", b"101"],
            [b'{"id":0}', b'{"id":1}'],
        ),
    ],
)
def test_what_the_kafka_sink_sends(monkeypatch, pipeline, keys, values):
    sent = []

    class Writer:
        def __init__(self, config, topic):
            assert config.bootstrap_servers == ["localhost:9092"]

        def write(self, batch, origin):
            sent.append(batch)

    monkeypatch.setattr(stage_module, "KafkaWriter", Writer)
    process(pipeline)(SOURCE.slice(0, 2))
    (batch,) = sent
    assert batch["key"].to_pylist() == keys
    assert batch["value"].to_pylist() == values


def test_rows_of_no_record_have_no_key(monkeypatch):
    sent = []

    class Writer:
        def __init__(self, config, topic):
            pass

        def write(self, batch, origin):
            sent.append(batch)

    monkeypatch.setattr(stage_module, "KafkaWriter", Writer)

    def total(batch):
        return pa.record_batch({"id": [pc.sum(batch["id"]).as_py()]})

    process(JSON.map_batches(total, schema="id BIGINT").write_kafka("x"))(SOURCE)
    assert sent[0].to_pydict() == {"key": [None], "value": [b'{"id":15}']}


def test_the_engine_is_found_by_its_entry_point():
    assert engine("ray") is OnRay
    with pytest.raises(UsageError, match=r"there is no engine 'flink'; registered are .*ray"):
        engine("flink")


def test_on_ray_makes_a_job_with_the_options_of_the_source_and_its_own():
    pipeline = (
        ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="b:9092", fetch_max_wait_ms=50)
        .raw()
        .map_batches(failing(), schema="key BINARY", num_gpus=0.5)
        .map_batches(failing(), schema="key BINARY", num_gpus=0.25)
        .write_parquet("/tmp/x")
    )
    run = pipeline.on_ray(workers=3, until="latest", batch_rows=10, config={"session.timeout.ms": 6000})
    config = run.job.config
    assert (config.group_id, config.bootstrap_servers) == ("g", ["b:9092"])
    assert (config.fetch_max_wait_ms, config.session_timeout_ms, config.batch_rows) == (50, 6000, 10)
    assert config.auto_commit_interval_ms == 10_000, "a file of each partition at each commit"
    assert pipeline.write(print).on_ray().job.config.auto_commit_interval_ms == 10_000, (
        "whichever sink is the last"
    )
    assert (run.job.workers, run.job.until, run.job.resources) == (3, "latest", {"num_gpus": 0.75})
    assert repr(run).endswith("3 workers, not started>")
    assert "in each worker" in run._repr_html_()
    pickle.dumps(run.job.plan().config)
    for method in (run.status, run.wait):
        with pytest.raises(UsageError, match="not started"):
            method()
    run.stop()


def test_options_of_the_source_count_unless_on_ray_says_otherwise():
    read = ka.Pipeline.read_kafka(
        "orders",
        group_id="g",
        bootstrap_servers="b:9092",
        auto_offset_reset="latest",
        batch_linger_ms=20,
        batch_rows=7,
    )
    pipeline = read.raw().write(print)
    config = pipeline.on_ray().job.config
    assert (config.auto_offset_reset, config.batch_rows, config.batch_linger_ms) == ("latest", 7, 20)
    config = pipeline.on_ray(auto_offset_reset="none", config={"batch.rows": 9}).job.config
    assert (config.auto_offset_reset, config.batch_rows) == ("none", 9)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: p.on_ray(workers=0), "workers: is 0"),
        (lambda p: p.on_ray(resources_per_worker=5), "resources_per_worker: is an int: accepts a dict"),
        (lambda p: p.on_ray(on_error="skip"), "on_error: is the pipeline's"),
        (lambda p: p.on_ray(sink=print), "sink: is the pipeline's"),
        (lambda p: p.on_ray(config={"retries": 5}), "retries: is the pipeline's"),
        (lambda p: p.on_ray(group_id="other"), "group_id: is the pipeline's"),
        (lambda p: p.on_ray(wrkers=3), "wrkers: is not an option; did you mean 'workers'"),
        (lambda p: p.sql("select * from {this}").on_ray(), r"write\(print\): is a sink"),
        (lambda p: JSON.sql("select * from {this}").write(print).on_ray(), "sql: is a DataFrame stage"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(make, said):
    with pytest.raises(ConfigError, match=said):
        make(JSON.write(print))


def test_the_live_line_ends_with_the_run_and_its_last_state_stays():
    shown = []

    class Ended:
        def wait(self, timeout):
            raise JobFailed(ValueError("no"))

        def stop(self, timeout, leave):
            assert timeout is None, "the job knows for how long it drains"

    run = OnRay(JSON.write(print), progress=False)
    run._running, run._live = Ended(), LiveLine(lambda: "failed", lambda *told: shown.append(told))
    run._live.start()
    with pytest.raises(JobFailed):
        run.wait()
    assert shown == [("failed", True)]
    assert not run._live._thread.is_alive()
    run.stop()
    assert shown == [("failed", True)]


def test_a_start_waits_for_the_pipeline_and_its_errors_name_what_users_have_written():
    async def awaited(batch):
        return batch

    for pipeline in (JSON, READ.map_batches(awaited, schema="id BIGINT")):
        assert function_of(PipelinePlan(pipeline, "g")).__name__ == "the pipeline"

    class Broken:
        def __init__(self):
            raise OSError("no such table")

        def write(self, batch): ...

    made = function_of(PipelinePlan(JSON.write(Broken, name="table"), "g"))
    with pytest.raises(OSError, match="no such table") as raised:
        constructed(made, {})
    of_class, of_sink = raised.value.__notes__
    assert of_class.startswith("raised by the constructor of Broken (test_pipeline_function.py")
    assert of_sink == "raised by the sink table"
