"""`Sending`: which partition a record goes to, what is waited for, and what is refused before anything is taken."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_actors.cluster.snapshot import ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import ConfigError, MessageTooLargeError, UsageError
from kafka_actors.producer.record_intake import RecordIntake
from kafka_actors.producer.send_steps import Full, Sending, Unknown
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.types import TopicPartition

NOW_MS = 1_700_000_000_000
KEYS = {
    key: hashed & 0x7FFFFFFF
    for key, hashed in (
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
    )
}
"""Hashes of `UtilsTest.testMurmur2` of Kafka, as `Utils.toPositive` has them."""


def metadata(**leaders: list[int]) -> ClusterSnapshot:
    """Topics with the leader of each partition."""
    return ClusterSnapshot(
        topics={
            topic: TopicMetadata(
                topic, partitions={p: PartitionMetadata(p, leader) for p, leader in enumerate(ids)}
            )
            for topic, ids in leaders.items()
        }
    )


class Stage:
    """Sending to a cluster with this metadata. `taken`: what was appended, as (topic, partition, value or number of rows)."""

    def __init__(self, snapshot: ClusterSnapshot, *, largest: int | None = None, **options: Any) -> None:
        self.config = build(ProducerConfig, bootstrap_servers="b:1", **options)
        self.client = SimpleNamespace(snapshot=snapshot, tracks=lambda topic: True)
        self.intake = RecordIntake(self.config, ACTIVE, lambda: 0.0, lambda batch: None, lambda: None)
        self.taken: list[tuple[str, int, Any]] = []
        self.records: list[tuple[Any, ...]] = []
        one, rows = self.intake.append_one, self.intake.append

        def append_one(tp: TopicPartition, *record: Any) -> Any:
            self.taken.append((*tp, record[1]))
            self.records.append(record)
            return one(tp, *record)

        def append(tp: TopicPartition, rows_: Any, order: Any, lo: int, hi: int, hint: int) -> Any:
            at, result, first = rows(tp, rows_, order, lo, hi, hint)
            if at > lo:
                self.taken.append((*tp, order[lo:at].tolist()))
            return at, result, first

        self.intake.append_one, self.intake.append = append_one, append  # type: ignore[method-assign]
        core: Any = SimpleNamespace(config=self.config, client=self.client, intake=self.intake)
        self.sending = Sending(core, iter(np.linspace(0, 0.999, 1_000)).__next__, lambda: NOW_MS, largest)
        self.waited: list[Any] = []

    def run(
        self, steps: Generator[Any, None, Any], meanwhile: Callable[[Any], None] = lambda wait: None
    ) -> Any:
        """The result; at each wait `meanwhile` happens."""
        while True:
            try:
                wait = next(steps)
            except StopIteration as done:
                return done.value
            self.waited.append(wait)
            assert len(self.waited) < 10, self.waited
            meanwhile(wait)

    def send(
        self, topic: str = "t", value: Any = b"v", *, meanwhile: Any = lambda wait: None, **more: Any
    ) -> Any:
        record = {"key": None, "headers": None, "partition": None, "timestamp_ms": None, **more}
        return self.run(self.sending.record(topic, value, **record), meanwhile)

    def batch(self, data: Any, topic: str | None = None, meanwhile: Any = lambda wait: None) -> Any:
        return self.run(self.sending.batch(data, topic), meanwhile)

    def knows(self, snapshot: ClusterSnapshot) -> Callable[[Any], None]:
        """That metadata comes while it is waited for."""
        return lambda wait: setattr(self.client, "snapshot", snapshot)


# ------------------------------------------------------------ one record


@pytest.mark.parametrize(("key", "hashed"), KEYS.items())
def test_a_key_goes_where_java_sends_it_leader_or_not(key: bytes, hashed: int) -> None:
    stage = Stage(metadata(t=[1, -1, 1, -1, 1]))
    stage.send(key=key)
    stage.send(key=key.decode())
    assert [partition for _, partition, _ in stage.taken] == [hashed % 5] * 2
    stage.client.snapshot = metadata(t=[1] * 7)
    stage.send(key=key)
    assert stage.taken[-1][1] == hashed % 7, "by the partitions that there are now"


def test_records_without_a_key_fill_one_partition_and_go_on_with_another_that_has_a_leader() -> None:
    stage = Stage(metadata(t=[1, -1, 1, -1]), batch_size=1_000)
    for _ in range(60):
        stage.send(value=b"x" * 100)
    partitions = [partition for _, partition, _ in stage.taken]
    assert set(partitions) == {0, 2}
    runs = [p for p, before in zip(partitions, [-1, *partitions], strict=False) if p != before]
    assert 8 <= len(runs) <= 20, "about 192 bytes each with what a batch of one record would cost"


def test_where_no_partition_has_a_leader_any_is_as_good() -> None:
    stage = Stage(metadata(t=[-1, -1]))
    stage.send()
    assert stage.taken[0][1] in (0, 1)


def test_metadata_of_an_unknown_topic_is_waited_for() -> None:
    stage = Stage(metadata())
    stage.send(meanwhile=stage.knows(metadata(t=[1])))
    assert stage.waited == [Unknown("t")]
    assert stage.taken == [("t", 0, b"v")]


def test_a_topic_that_metadata_does_not_follow_any_more_is_asked_for_again() -> None:
    stage = Stage(metadata(t=[1]))
    followed: set[str] = set()
    stage.client.tracks = followed.__contains__
    stage.send(meanwhile=lambda wait: followed.add(wait.topic))
    assert stage.waited == [Unknown("t")]


def test_a_partition_that_the_topic_may_have_got_is_looked_for_once() -> None:
    stage = Stage(metadata(t=[1, 1]))
    stage.send(partition=3, meanwhile=stage.knows(metadata(t=[1] * 4)))
    assert stage.waited == [Unknown("t", 3)]
    assert stage.taken == [("t", 3, b"v")]
    with pytest.raises(UsageError, match="t has no partition 4: it has 4, from 0 to 3"):
        stage.send(partition=4)
    with pytest.raises(UsageError, match="t has no partition -1"):
        stage.send(partition=-1)
    assert stage.waited == [Unknown("t", 3), Unknown("t", 4)]
    assert len(stage.taken) == 1


def test_room_is_waited_for_before_a_record_is_taken() -> None:
    stage = Stage(metadata(t=[1]), buffer_memory=32_768)
    stage.send(value=b"x" * 40_000)
    stage.send(meanwhile=lambda wait: stage.intake.release(stage.intake.used))
    assert stage.waited == [Full("t")]
    assert [len(value) for _, _, value in stage.taken] == [40_000, 1]


def test_what_is_sent_is_as_it_was_at_the_call() -> None:
    stage = Stage(metadata(t=[1]))
    value = bytearray(b"before")
    stage.send(value=value, headers={"name": memoryview(b"h"), "none": None})
    value[:] = b"after!"
    stage.send(value="text", headers=[("a", b"1"), ("a", "2")], timestamp_ms=np.int64(5))
    stage.send(value=None, headers=[], timestamp_ms=0)
    assert stage.records == [
        (None, b"before", [(b"name", b"h"), (b"none", None)], NOW_MS),
        (None, b"text", [(b"a", b"1"), (b"a", b"2")], 5),
        (None, None, None, 0),
    ]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": 5}, "value is .*int: it must be bytes, a str or None"),
        ({"key": 5.0}, "key is .*float: it must be bytes"),
        ({"partition": True}, "partition is True, .*: it must be an int"),
        ({"partition": 1.0}, r"partition is 1\.0, .*: it must be an int"),
        ({"timestamp_ms": "now"}, "timestamp_ms is 'now'"),
        ({"timestamp_ms": 1 << 63}, "timestamp_ms is 9223372036854775808: it must be an int of 64 bits"),
        ({"timestamp_ms": -1}, "timestamp_ms is -1: it must not be negative"),
        ({"timestamp_ms": -5}, "timestamp_ms is -5: it must not be negative"),
        ({"timestamp_ms": NOW_MS * 1_000_000}, "timestamp_ms is .*in microseconds"),
        ({"value": "a\ud800"}, r"value can't be sent as UTF-8: its character 1 is '\\ud800'"),
        ({"key": "\udcff"}, r"key can't be sent as UTF-8: its character 0 is '\\udcff'"),
        ({"headers": {"a": "\ud800"}}, "header 'a' can't be sent as UTF-8"),
        ({"headers": {"\ud800": "a"}}, r"the header's name '\\ud800' can't be sent as UTF-8"),
        ({"headers": {"a": 5}}, "header 'a' is .*int"),
        ({"headers": {b"a": b"5"}}, "a header's name is .*bytes: it must be a str"),
        ({"headers": ["ab", "abc"]}, r"a header is 'abc': it must be \(name, value\)"),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_sent_is_refused_before_it_shares_a_batch(
    record: dict[str, Any], said: str
) -> None:
    stage = Stage(metadata(t=[1, 1]))
    with pytest.raises(UsageError, match=f"^send: {said}"):
        stage.send(**record)
    assert stage.taken == []


def test_a_record_larger_than_a_request_is_refused_with_its_headers_counted() -> None:
    stage = Stage(metadata(t=[1]), max_request_size=1_000)
    stage.send(value=b"x" * 900)
    for record in ({"value": b"x" * 950}, {"value": b"x" * 900, "headers": {"h": b"x" * 50}}):
        with pytest.raises(MessageTooLargeError, match="max_request_size is 1000"):
            stage.send(**record)
    assert len(stage.taken) == 1


def test_a_copy_of_a_record_may_be_larger_than_a_request() -> None:
    stage = Stage(metadata(t=[1]), max_request_size=1_000, largest=10_000)
    stage.send(value=b"x" * 2_000)
    stage.batch(pa.record_batch({"value": [b"x" * 2_000]}), "t")
    assert len(stage.taken) == 2
    with pytest.raises(MessageTooLargeError, match="max_request_size is 10000"):
        stage.send(value=b"x" * 10_000)


@pytest.mark.parametrize("topic", ["", "a b", "a,b", None, 5])
def test_a_topic_that_cannot_be_is_refused_and_not_waited_for(topic: Any) -> None:
    stage = Stage(metadata())
    with pytest.raises(ConfigError):
        stage.send(topic)
    with pytest.raises(ConfigError if topic is not None else UsageError):
        stage.batch(pa.record_batch({"value": [b"v"]}), topic)
    assert stage.waited == []


def test_the_partitions_of_a_topic_are_known_when_metadata_is() -> None:
    stage = Stage(metadata())
    found = stage.run(stage.sending.partitions("t"), stage.knows(metadata(t=[1, -1, 1])))
    assert (found, stage.waited) == ({0, 1, 2}, [Unknown("t")])


class WhileLooked(dict[str, Any]):
    """Topics of metadata; the first time that one is looked up `then` is called: another thread's turn."""

    then: list[Callable[[], Any]]

    def get(self, *args: Any) -> Any:
        found = super().get(*args)
        while self.then:
            self.then.pop()()
        return found


def test_what_a_thread_finds_in_older_metadata_is_not_kept_for_newer() -> None:
    stage = Stage(metadata(u=[1]))
    topics = WhileLooked(metadata(t=[1, 1], u=[1]).topics)
    topics.then = []
    stage.client.snapshot = ClusterSnapshot(topics=topics)
    stage.send("u")

    def another_thread() -> None:
        stage.client.snapshot = metadata(t=[1, 1, 1, 1], u=[1])
        stage.send("u")

    topics.then.append(another_thread)
    stage.send("t", partition=0)
    assert stage.run(stage.sending.partitions("t")) == {0, 1, 2, 3}


# ------------------------------------------------------------ many records


def test_each_row_goes_to_its_topic_and_partition() -> None:
    """By the column, by the key as Java hashes it, or to one partition for all that have neither."""
    stage = Stage(metadata(t=[1] * 5, u=[1]))
    rows = pa.record_batch(
        {
            "value": [b"0", b"1", b"2", b"3", b"4", b"5"],
            "topic": ["t", "t", "u", "t", "t", "u"],
            "partition": pa.array([4, None, 0, None, None, None], pa.int32()),
            "key": [b"21", b"foobar", None, b"21", None, b"x"],
        }
    )
    future = stage.batch(rows)
    found = {(topic, partition): rows for topic, partition, rows in stage.taken}
    assert found.pop(("u", 0)) == [0, 1], "the second and the last row, numbered within their topic"
    sticky = next(partition for (_, partition), rows in found.items() if 3 in rows)
    expected: dict[int, list[int]] = {}
    for row, partition in enumerate([4, KEYS[b"foobar"] % 5, KEYS[b"21"] % 5, sticky]):
        expected.setdefault(partition, []).append(row)
    assert found == {("t", partition): rows for partition, rows in expected.items()}
    assert not future.done()


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"topic": ["t", "t", "u"], "value": [b"", b"", b"x" * 2_000]}, MessageTooLargeError),
        ({"topic": ["t", "t", "u"], "partition": pa.array([0, 0, 9], pa.int32())}, UsageError),
        ({"topic": ["t", "t", None]}, UsageError),
        ({"topic": ["t", "t", "u u"]}, UsageError),
        ({"topic": ["t", "t", "u"], "valeu": [b"", b"", b""]}, UsageError),
    ],
    ids=["too large", "no such partition", "no topic", "no name", "misspelt"],
)
def test_a_batch_with_one_row_that_is_refused_leaves_nothing_behind(
    columns: dict[str, Any], error: type[Exception]
) -> None:
    stage = Stage(metadata(t=[1], u=[1]), max_request_size=1_000)
    with pytest.raises(error):
        stage.batch(pa.record_batch({"value": [b"1", b"2", b"3"], **columns}))
    assert stage.taken == []


def test_of_a_table_the_arrow_batches_before_the_one_at_fault_are_sent() -> None:
    stage = Stage(metadata(t=[1]), max_request_size=1_000)
    good, bad = pa.record_batch({"value": [b"1", b"2"]}), pa.record_batch({"value": [b"3", b"x" * 2_000]})
    with pytest.raises(MessageTooLargeError, match="row 1 takes"):
        stage.batch(pa.Table.from_batches([good, bad]), "t")
    assert stage.taken == [("t", 0, [0, 1])]


def test_a_batch_larger_than_memory_is_taken_as_room_comes_and_each_row_once() -> None:
    stage = Stage(metadata(t=[1]), buffer_memory=32_768, batch_size=10_000)
    data = pa.record_batch({"value": [b"x" * 1_000] * 100})
    stage.batch(data, "t", lambda wait: stage.intake.release(stage.intake.used))
    assert set(stage.waited) == {Full("t")}
    assert len(stage.waited) >= 2
    assert [row for _, _, rows in stage.taken for row in rows] == list(range(100))


def test_a_partition_of_a_batch_that_the_topic_may_have_got_is_looked_for() -> None:
    stage = Stage(metadata(t=[1]))
    data = pa.record_batch({"value": [b"1", b"2"], "partition": pa.array([0, 2], pa.int32())})
    stage.batch(data, "t", stage.knows(metadata(t=[1, 1, 1])))
    assert stage.waited == [Unknown("t", 2)]
    assert stage.taken == [("t", 0, [0]), ("t", 2, [1])]


def test_a_batch_without_rows_is_done_at_once() -> None:
    stage = Stage(metadata(t=[1]))
    assert stage.batch(pa.table({"value": pa.array([], pa.binary())}), "t").done()
    with pytest.raises(UsageError, match=r"takes a pyarrow.RecordBatch or Table, not .*list"):
        stage.batch([b"1"], "t")
