"""A task's rows are all acknowledged when it ends; errors that a retry would only repeat end the write at its commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from kafka_actors.errors import (
    ConfigError,
    DisconnectedError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.spark.source import task_tracing, writers
from kafka_actors.spark.source.machines.task_markers import TaskMarker, is_marker_group
from kafka_actors.spark.source.sink_options import SinkOptions, parse_sink, transactional_options
from kafka_actors.spark.source.writers import KafkaBatchWriter, KafkaStreamWriter, WriteCommit


class Sent:
    """Future of a batch; `error` is known at the flush."""

    def __init__(self, batch: pa.RecordBatch, topic: str | None, error: Exception | None) -> None:
        self.batch, self.topic = batch, topic
        self._error = error
        self.settled = False

    def done(self) -> bool:
        return self.settled

    def result(self) -> None:
        if self._error is not None:
            raise self._error


class Producer:
    def __init__(self, *errors: Exception | None, settles: bool = False) -> None:
        self.sent: list[Sent] = []
        self.flushed = 0
        self._errors = list(errors)
        self._settles = settles

    def send_batch(self, batch: pa.RecordBatch, *, topic: str | None) -> Sent:
        sent = Sent(batch, topic, self._errors.pop(0) if self._errors else None)
        sent.settled = self._settles
        self.sent.append(sent)
        return sent

    def flush(self) -> None:
        self.flushed += 1


class Scene:
    """Writers whose producer is a fake; `given_back` says whether the producer went back to the pool."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, producer: Any) -> None:
        self.producer = producer
        self.given_back = False
        self.checked: list[tuple[str | None, str]] = []

        @contextmanager
        def lend(key: object, make: object) -> Iterator[Producer]:
            yield producer
            self.given_back = True

        monkeypatch.setattr(writers.producers, "lend", lend)
        monkeypatch.setattr(writers, "freeze_imports", lambda: None)
        monkeypatch.setattr(task_tracing, "traced_task", lambda: nullcontext(False))
        monkeypatch.setattr(
            writers, "check_target", lambda config, topic, what: self.checked.append((topic, what))
        )

    def writer(self, kind: Any = KafkaBatchWriter, **options: str) -> Any:
        return kind(sink_options(**options))


def sink_options(*, topic: str | None = "scored", column: bool = False, **options: str) -> SinkOptions:
    schema = StructType().add("more", StringType()).add("value", BinaryType())
    if column:
        schema = schema.add("topic", StringType())
    raw = {"kafka.bootstrap.servers": "a:1", **options}
    return parse_sink(raw if topic is None else {**raw, "topic": topic}, schema)


def rows(*values: bytes, topics: list[str | None] | None = None) -> pa.RecordBatch:
    columns: dict[str, Any] = {"more": ["x"] * len(values), "value": pa.array(values, pa.binary())}
    return pa.record_batch(columns if topics is None else {**columns, "topic": topics})


def test_rows_are_sent_without_other_columns_and_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Producer())
    commit = scene.writer().write(iter([rows(b"a", b"b"), rows(b"c")]))
    assert (commit.rows, commit.refused) == (3, None)
    assert [(sent.batch.schema.names, sent.topic) for sent in scene.producer.sent] == [
        (["value"], "scored")
    ] * 2
    assert (scene.producer.flushed, scene.given_back) == (1, True)


def test_the_topic_is_looked_up_where_the_write_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Producer())
    scene.writer()
    scene.writer(topic=None, column=True)
    assert scene.checked == [("scored", "the option topic's topic"), (None, "the option topic's topic")]


def test_a_row_without_a_topic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Producer())
    commit = scene.writer(topic=None, column=True).write(iter([rows(b"a", b"b", topics=["t", None])]))
    assert isinstance(commit.refused, UsageError)
    assert scene.producer.sent == []
    assert not scene.given_back


def test_an_error_that_a_retry_would_repeat_is_raised_at_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Producer(MessageTooLargeError()))
    writer = scene.writer()
    commit = writer.write(iter([rows(b"a")]))
    assert isinstance(commit.refused, MessageTooLargeError)
    assert not scene.given_back
    with pytest.raises(MessageTooLargeError):
        writer.commit([None, WriteCommit(3), commit])
    writer.commit([None, WriteCommit(3)])


def test_an_error_that_may_pass_is_raised_in_the_task_which_spark_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, Producer(DisconnectedError("gone")))
    with pytest.raises(DisconnectedError):
        scene.writer().write(iter([rows(b"a")]))


def test_an_error_ends_the_task_before_the_other_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Producer(UnknownTopicOrPartitionError(topic="scored"), settles=True))
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for value in (b"a", b"b", b"c"):
            taken.append(value)
            yield rows(value)

    commit = scene.writer().write(batches())
    assert isinstance(commit.refused, UnknownTopicOrPartitionError)
    assert taken == [b"a"]


def test_a_streams_writer_does_the_same_for_each_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, Producer(MessageTooLargeError()))
    writer = scene.writer(KafkaStreamWriter)
    commit = writer.write(iter([rows(b"a")]))
    with pytest.raises(MessageTooLargeError):
        writer.commit([commit], 7)


@pytest.mark.parametrize("kind", [KafkaBatchWriter, KafkaStreamWriter])
def test_a_failed_write_says_what_stays_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: Any
) -> None:
    writer = Scene(monkeypatch, Producer()).writer(kind)
    messages = [WriteCommit(3), None, WriteCommit(4)]
    with caplog.at_level(logging.WARNING):
        writer.abort(messages) if kind is KafkaBatchWriter else writer.abort(messages, 7)
    assert "the write failed; 7 rows were written already" in caplog.text


def test_options_without_effect_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Scene(monkeypatch, Producer()).writer(**{"kafka.group.id": "g"})
    assert "kafka.group.id has no effect here" in caplog.text


# ---------------------------------------------------------------- in transactions


class Transacting(Producer):
    """A producer of tasks' transactions; `offsets` are those of all groups."""

    def __init__(self, *errors: Exception | None) -> None:
        super().__init__(*errors)
        self.offsets: dict[str, Any] = {}
        self.said: list[str] = []

    def send_batch(self, batch: pa.RecordBatch, *, topic: str | None) -> Sent:
        sent = super().send_batch(batch, topic=topic)
        sent.result()
        return sent

    def take_over(self, transactional_id: str) -> None:
        self.said.append(f"fence {transactional_id}")

    def stable_offsets(self, group_id: str, partitions: Any) -> Any:
        return self.offsets.get(group_id, {})

    def noted_splits(self, group_id: str, partition: Any) -> Any:
        return self.offsets.get(group_id, {}).get(partition)

    def note_splits(self, group_id: str, partition: Any, splits: Any) -> None:
        self.offsets[group_id] = {partition: splits}

    def begin_transaction(self) -> None:
        pass

    def send_offsets_to_transaction(self, offsets: Any, group: Any) -> None:
        self.offsets[group.group_id] = offsets

    def commit_transaction(self) -> None:
        self.said.append("commit")

    def abort_transaction(self) -> None:
        self.said.append("abort")


class Context:
    """A `TaskContext` of partition 2 in micro-batch 7."""

    @staticmethod
    def partitionId() -> int:
        return 2

    @staticmethod
    def getLocalProperty(name: str) -> str:
        return {"sql.streaming.queryId": "the-query", "streaming.sql.batchId": "7"}[name]


def transactional_scene(
    monkeypatch: pytest.MonkeyPatch, *errors: Exception | None
) -> tuple[Scene, dict[str, str]]:
    scene = Scene(monkeypatch, Transacting(*errors))
    monkeypatch.setattr(writers.task_producers, "lend", writers.producers.lend)
    monkeypatch.setattr(writers.TaskContext, "get", lambda: Context)
    schema = StructType().add("more", StringType()).add("value", BinaryType())
    return scene, transactional_options("s", schema)


def test_a_streams_task_writes_under_the_query_and_its_number_and_commits_the_micro_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, options = transactional_scene(monkeypatch)
    writer = scene.writer(KafkaStreamWriter, checkpointLocation="/data/c", **options)
    commit = writer.write(iter([rows(b"a"), rows(b"b", b"c")]))
    assert (commit.rows, commit.refused, scene.given_back) == (3, None, True)
    group = "kafka_actors-the-query-scored-2"
    assert scene.producer.said == [f"fence {group}", "commit"]
    assert scene.producer.offsets[group] == {("scored", 0): TaskMarker(3, "s").committed(7)}
    assert writer.write(iter([rows(b"a", b"b", b"c")])).rows == 3
    assert len(scene.producer.sent) == 2
    assert isinstance(writer.write(iter([rows(b"a")])).refused, UsageError)
    scene.producer.offsets[group] = {("scored", 0): TaskMarker(3, "s").committed(9)}
    refused = writer.write(iter([rows(b"a")])).refused
    with pytest.raises(ConfigError, match=r"/data/c is at micro-batch 7, .* up to micro-batch 9 already"):
        writer.commit([WriteCommit(0, refused)], 7)


def test_each_batch_that_is_planned_has_an_identity_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, options = transactional_scene(monkeypatch)
    first, second = (scene.writer(**options) for _ in range(2))
    first.write(iter([rows(b"a")]))
    first.write(iter([rows(b"a")]))
    assert len(scene.producer.sent) == 1
    second.write(iter([rows(b"a")]))
    assert len(scene.producer.sent) == 2
    assert len(scene.producer.offsets) == 2
    assert all(is_marker_group(group) for group in scene.producer.offsets)


def test_a_task_that_fails_aborts_and_its_producer_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, options = transactional_scene(monkeypatch, DisconnectedError("gone"))
    with pytest.raises(DisconnectedError):
        scene.writer(**options).write(iter([rows(b"a")]))
    assert scene.producer.said[-1] == "abort"
    assert not scene.given_back


def test_the_markers_topic_is_looked_up_where_the_write_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, _ = transactional_scene(monkeypatch)
    schema = StructType().add("value", BinaryType()).add("topic", StringType())
    raw = {
        "kafka.bootstrap.servers": "a:1",
        "transactional.marker.topic": "m",
        **transactional_options("s", schema),
    }
    KafkaStreamWriter(parse_sink(raw, schema))
    assert scene.checked[-1] == ("m", "the markers' topic")
