"""Sinks of a pipeline that deliver exactly once: rows go within the task's transaction, which is committed last."""

from contextlib import nullcontext
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fakes.records import records

import kafka_actors as ka
from kafka_actors.errors import (
    ConfigError,
    DisconnectedError,
    KafkaTimeoutError,
    MessageTooLargeError,
    ProducerFencedError,
    SinkError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.pipeline.rows import rows_of
from kafka_actors.sinks import Origin
from kafka_actors.sinks.sink import TransactionBroken
from kafka_actors.spark.engine import pipeline_sink, transactional_sink
from kafka_actors.spark.engine.frames import PipelineFrame
from kafka_actors.spark.engine.pipeline_sink import PipelineBatchWriter, SinkPlan
from kafka_actors.spark.engine.transactional_sink import checked_splits
from kafka_actors.spark.source.machines.task_markers import PREFIX, TaskMarker, WriteName

RECORDS = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")
READ = RECORDS.raw()
SOURCE = records([b"1", b"2", b"3"])
FRAME = PipelineFrame(pa.schema({"value": pa.binary()}), kafka=True)
ROWS = FRAME.pack(rows_of(SOURCE)._replace(batch=SOURCE.select(["value"])), SOURCE)
EXACT = {"delivery": "exactly_once"}


class Producer:
    """A `TaskProducer`; `said` is shared by all of a test, `offsets` are those of all groups."""

    def __init__(self, said, offsets, errors):
        self.said, self.offsets, self.errors = said, offsets, errors
        self.sent = []
        self.closed = False
        self.failure = None

    def take_over(self, transactional_id):
        self.id = transactional_id
        self.said.append(f"fence {transactional_id}")

    def stable_offsets(self, group, partitions):
        return {tp: offset for tp, offset in self.offsets.get(group, {}).items() if tp in partitions}

    def begin_transaction(self):
        pass

    def send_batch(self, batch, topic):
        if self.errors:
            raise self.errors.pop(0)
        self.sent += [(topic, value) for value in batch["value"].to_pylist()]

    def flush(self):
        self.said.append("flush")

    def send_offsets_to_transaction(self, offsets, group):
        self.moved = (group.group_id, offsets)

    def commit_transaction(self):
        group, offsets = self.moved
        self.offsets.setdefault(group, {}).update(offsets)
        self.said.append(f"commit {group}")

    def abort_transaction(self):
        self.said.append("abort")

    def close(self, timeout_ms):
        self.closed = True


@pytest.fixture
def scene(monkeypatch):
    """Producers that are made are in `scene.made`; the next one gets the errors in `scene.errors`."""
    scene = SimpleNamespace(made=[], said=[], offsets={}, errors=[])

    def made(config):
        scene.config = config
        scene.made.append(Producer(scene.said, scene.offsets, scene.errors))
        return scene.made[-1]

    monkeypatch.setattr(transactional_sink, "task_producer", made)
    monkeypatch.setattr(transactional_sink, "check_target", lambda *_: None)
    monkeypatch.setattr(pipeline_sink, "traced_task", lambda: nullcontext(False))
    monkeypatch.setattr(pipeline_sink, "freeze_imports", lambda: None)
    yield scene
    pipeline_sink._cache.clear()


def writer(pipeline, run="0" * 32):
    sinks = pipeline.check("spark").sinks
    plan = SinkPlan("p", run, f"key {run}", pipeline.source, sinks, (), pipeline.retries, FRAME, None, "s")
    return PipelineBatchWriter(plan)


GROUP = f"{PREFIX}{'0' * 32}-scored-0"


def test_a_task_writes_in_one_transaction_and_commits_its_marker_last(scene):
    pipeline = READ.write_kafka("scored", format="columns", **EXACT)
    commit = writer(pipeline).write(iter([ROWS, ROWS]))
    assert commit.refused is None
    assert scene.made[0].sent == [("scored", value) for value in (b"1", b"2", b"3") * 2]
    assert scene.said == [f"fence {GROUP}", "flush", f"commit {GROUP}"]
    assert scene.offsets == {GROUP: {("scored", 0): TaskMarker(6, "s").committed(0)}}
    assert (scene.config.transactional_id, scene.config.transaction_timeout_ms) == (PREFIX, 900_000)


def test_a_task_that_is_tried_again_sends_nothing_and_another_write_does(scene):
    pipeline = READ.write_kafka("scored", format="columns", transaction_timeout_ms=5_000, **EXACT)
    first = writer(pipeline)
    first.write(iter([ROWS]))
    first.write(iter([ROWS]))
    assert len(scene.made[0].sent) == 3
    assert scene.config.transaction_timeout_ms == 5_000
    writer(pipeline, "1" * 32).write(iter([ROWS]))
    assert len(scene.made[1].sent) == 3
    assert isinstance(first.write(iter([ROWS, ROWS])).refused, UsageError)


def test_each_sink_has_its_markers_and_all_are_committed_behind_the_others_flush(scene):
    class Store:
        def write(self, batch):
            pass

        def flush(self):
            scene.said.append("store")

    exact = READ.write_kafka("scored", format="columns", name="a", **EXACT)
    twice = exact.write_kafka("scored", format="columns", name="b", **EXACT)
    writer(twice.write(Store)).write(iter([ROWS]))
    second = f"{PREFIX}{'0' * 32}-scored+2-0"
    assert scene.said == [
        *(f"fence {GROUP}", f"fence {second}"),
        *("flush", "flush", "store"),
        *(f"commit {GROUP}", f"commit {second}"),
    ]


def test_rows_that_name_their_topics_have_their_markers_under_the_topic_for_them(scene):
    named = RECORDS.write_kafka(format="columns", marker_topic="markers", **EXACT)
    writer(named).write(iter([ROWS]))
    assert scene.made[0].sent[0][0] is None
    assert next(iter(scene.offsets.values())).keys() == {("markers", 0)}


@pytest.mark.parametrize(
    "error",
    [
        MessageTooLargeError(),
        UsageError("no such partition"),
        UnknownTopicOrPartitionError(topic="wrong"),
        TopicAuthorizationFailedError(topic="wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_row_that_is_refused_is_skipped_and_the_rest_is_committed_and_not_sent_again(scene, error):
    scene.errors += [error, error]
    pipeline = READ.on_error("skip", retries=0).write_kafka("scored", format="columns", **EXACT)
    first = writer(pipeline)
    assert first.write(iter([ROWS])).refused is None
    assert [value for _, value in scene.made[0].sent] == [b"2", b"3"]
    assert first.write(iter([ROWS])).refused is None
    assert len(scene.made[0].sent) == 2


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("error", [KafkaTimeoutError("no room"), DisconnectedError("no room")])
def test_an_error_of_the_transaction_ends_the_task_at_once_and_is_none_of_its_rows(scene, on_error, error):
    """A retry would send some rows twice in the same transaction, and dead letters would be of rows that the task's next try writes."""
    scene.errors += [error]
    pipeline = READ.dead_letters("dead").write_kafka("scored", format="columns", on_error=on_error, **EXACT)
    with pytest.raises(SinkError, match=r"^write_kafka\(scored\): \w+Error: no room") as caught:
        writer(pipeline).write(iter([ROWS, ROWS]))
    assert caught.value.__cause__ is error
    assert scene.made[0].sent == []
    assert scene.said[-1] == "abort"
    assert scene.made[0].closed


def test_what_a_producer_refuses_that_has_failed_is_no_fault_of_the_rows(scene):
    fenced = ProducerFencedError("fenced")
    made = transactional_sink.TransactionalTaskWriter(
        "s", SimpleNamespace(transaction_timeout_ms=1), "scored"
    )
    made.transaction(WriteName("0" * 32, 0, streaming=False), "s", "scored", 0, "splits").writes = True
    scene.made[0].failure = fenced
    scene.errors += [UsageError("the transaction has to be aborted")]
    with pytest.raises(TransactionBroken) as caught:
        made.write(SOURCE, Origin("orders", 0, 0, 2))
    assert caught.value.cause.__cause__ is fenced


def test_an_error_that_another_try_would_meet_ends_the_write(scene):
    wrong = ConfigError("compression_type", "is not known")
    scene.errors += [wrong]
    pipeline = READ.write_kafka("scored", format="columns", on_error="skip", **EXACT)
    refused = writer(pipeline).write(iter([ROWS])).refused
    assert isinstance(refused, SinkError)
    assert refused.__cause__ is wrong


def test_topics_of_both_kinds_are_looked_up_where_the_write_is_planned(monkeypatch):
    checked = []
    monkeypatch.setattr(
        transactional_sink, "check_target", lambda config, topic, what: checked.append((topic, what))
    )
    monkeypatch.setattr(pipeline_sink, "freeze_imports", lambda: None)
    writer(RECORDS.write_kafka(format="columns", marker_topic="markers", **EXACT))
    assert checked == [(None, "the sink's topic"), ("markers", "the markers' topic")]


def test_a_plan_is_read_only_for_sinks_that_deliver_exactly_once(monkeypatch):
    text = "== Physical Plan ==\nExchange (2)\n+- StreamingRelation (1)\n\n\n(1) StreamingRelation\nArguments: kafka_actors, []\n"
    monkeypatch.setattr(transactional_sink, "explained", lambda df: text)
    monkeypatch.setattr(transactional_sink, "sources_of", lambda df: [])

    def splits(pipeline, **options):
        return checked_splits(None, pipeline.check("spark").sinks, options, streaming=True)

    exact = READ.write_kafka("scored", format="columns", **EXACT)
    assert splits(READ.write_kafka("scored", format="columns")) == ""
    with pytest.raises(ConfigError, match=r"write_kafka\(scored\): delivery: Exchange is a shuffle"):
        splits(exact)
    text = text.replace("Exchange", "* Project")
    assert splits(exact, minPartitions="3") != splits(exact, minPartitions="4")
    assert splits(exact, subscribe="a") == splits(exact, subscribe="b")
    two = exact.write_kafka("scored", format="json", **EXACT)
    assert (
        len({splits(exact), splits(two), splits(READ.write_kafka("other", format="columns", **EXACT))}) == 3
    )


def test_a_writer_takes_no_rows_before_its_task_has_begun(scene):
    made = transactional_sink.TransactionalTaskWriter(
        "s", SimpleNamespace(transaction_timeout_ms=1), "scored"
    )
    with pytest.raises(AssertionError):
        made.write(SOURCE, Origin("orders", 0, 0, 2))
    assert "TransactionalTaskWriter" in repr(made)
