"""One task's ranges are read to their ends; what is lost on the way ends the task or is left out, and waiting ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.records import records

from kafka_actors.cluster.snapshot import ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.errors import (
    DataLossError,
    FetchOffsetOutOfRangeError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.fetch import PartitionStart
from kafka_actors.spark.source import task_reader
from kafka_actors.spark.source.machines.offset_ranges import TaskRange
from kafka_actors.spark.source.options import parse_batch
from kafka_actors.spark.source.task_reader import read_ranges
from kafka_actors.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER = b"i" * 16, b"o" * 16


def snapshot(topic_id: bytes | None = ID) -> ClusterSnapshot:
    partitions = {p: PartitionMetadata(p, 1, 0, (1,), (1,), (), 0) for p in (0, 1)}
    return ClusterSnapshot(1, None, None, {}, {"t": TopicMetadata("t", topic_id, False, 0, partitions)})


def undescribed(code: int) -> ClusterSnapshot:
    """Metadata with the error of a topic in place of its partitions."""
    return ClusterSnapshot(1, None, None, {}, {"t": TopicMetadata("t", None, False, code, {})})


class Fetcher:
    """Returns scripted chunks: (partition, records, offset behind them), or raises a loss."""

    def __init__(self) -> None:
        self.assigned: list[dict[TopicPartition, PartitionStart]] = []
        self.revoked: list[TopicPartition] = []
        self.ends: dict[TopicPartition, int] = {}
        self.log_ends: dict[TopicPartition, int] = {}

    def assign(self, starts: dict[TopicPartition, PartitionStart]) -> None:
        self.assigned.append(starts)
        self.ends.update({tp: start.end_offset or 0 for tp, start in starts.items()})

    def revoke(self, partitions: list[TopicPartition]) -> None:
        self.revoked += partitions

    def decode(self, item: Any) -> Iterator[Any]:
        count = item.next_offset - item.first
        rows = records([b"v"] * count, topic="t", partition=item.partition.partition, first=item.first)
        yield SimpleNamespace(batch=rows, next_offset=item.next_offset)
        self._reached = item.next_offset >= self.ends[item.partition]

    def consumed(self, item: Any) -> bool:
        return not item.moved

    def end_reached(self, tp: TopicPartition) -> bool:
        return self._reached

    def end(self, tp: TopicPartition) -> int | None:
        return self.log_ends.get(tp)

    def reason(self, tp: TopicPartition) -> str:
        return ""


class Session:
    """A session whose `take` answers as scripted; None lets the whole timeout pass."""

    def __init__(self, script: list[Any]) -> None:
        self.fetcher = Fetcher()
        self.client = SimpleNamespace(snapshot=snapshot())
        self.now = 0.0
        self.began: list[TopicPartition] = []
        self.ended = False
        self.refreshed = 0
        self.ids: list[bytes] = []  # of metadata that come yet
        self._script = script

    def begin(self, partitions: Iterator[TopicPartition]) -> None:
        self.began = list(partitions)

    def end(self) -> None:
        self.ended = True

    def refresh(self) -> None:
        self.refreshed += 1
        if self.ids:
            self.client.snapshot = snapshot(self.ids.pop(0))

    def take(self, timeout_s: float) -> Any:
        step = self._script.pop(0) if self._script else None
        if isinstance(step, Exception):
            raise step
        if step is None:
            self.now += timeout_s
        return step


def item(tp: TopicPartition, first: int, next_offset: int, *, moved: bool = False) -> Any:
    """Fetched records; `moved`: the fetcher moves the position behind a bad batch, so that no record of the item is consumed."""
    return SimpleNamespace(partition=tp, first=first, next_offset=next_offset, moved=moved)


class Task:
    """A task with a scripted session; the session is lent for the time of the read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: Any, **options: str) -> None:
        self.session = Session(list(script))
        self.given_back = False

        @contextmanager
        def lend(key: object, make: object) -> Iterator[Session]:
            yield self.session
            self.given_back = True

        monkeypatch.setattr(task_reader.sessions, "lend", lend)
        monkeypatch.setattr(task_reader, "freeze_imports", lambda: None)
        self.pauses: list[float] = []
        monkeypatch.setattr("time.sleep", self.pauses.append)
        self._options = parse_batch(
            {
                "kafka.bootstrap.servers": "a:1",
                "subscribe": "t",
                "kafkaConsumer.pollTimeoutMs": "5000",
                **options,
            }
        )

    def read(self, *ranges: TaskRange) -> list[tuple[int, int]]:
        """Partition and offset of each record."""
        found = []
        for batch in read_ranges(self._options, ranges, lambda: self.session.now):
            columns = (batch.column("partition"), batch.column("offset"))
            found += list(zip(*(column.to_pylist() for column in columns), strict=True))
        return found


def test_a_range_is_read_to_its_end_and_the_session_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, item(T0, 5, 7), item(T0, 7, 9))
    assert task.read(TaskRange("t", 0, 5, 9, ID)) == [(0, 5), (0, 6), (0, 7), (0, 8)]
    assert task.session.fetcher.assigned == [{T0: PartitionStart(offset=5, end_offset=9, topic_id=ID)}]
    assert task.session.fetcher.revoked == [T0]
    assert (task.session.began, task.session.ended, task.given_back) == ([T0], True, True)


def test_ranges_are_read_side_by_side_and_each_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, item(T0, 0, 1), item(T1, 4, 5), item(T0, 1, 2))
    assert task.read(TaskRange("t", 0, 0, 2), TaskRange("t", 1, 4, 5)) == [(0, 0), (1, 4), (0, 1)]
    assert task.session.fetcher.revoked == [T1, T0]


def test_a_range_ends_behind_a_bad_batch_that_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, item(T0, 5, 9, moved=True))
    assert task.read(TaskRange("t", 0, 5, 9, ID)) == [(0, 5), (0, 6), (0, 7), (0, 8)]


def test_chunks_without_rows_move_the_position_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, item(T0, 9, 9))
    assert task.read(TaskRange("t", 0, 5, 9)) == []


def test_a_loss_ends_the_task_and_its_session_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = FetchOffsetOutOfRangeError("t", 0, 5, 8)
    task = Task(monkeypatch, loss)
    with pytest.raises(FetchOffsetOutOfRangeError) as raised:
        task.read(TaskRange("t", 0, 5, 9))
    assert raised.value is loss
    assert not task.given_back


def test_where_losses_are_allowed_it_goes_on_at_the_start_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task(monkeypatch, FetchOffsetOutOfRangeError("t", 0, 5, 7), item(T0, 7, 9), failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert task.read(TaskRange("t", 0, 5, 9)) == [(0, 7), (0, 8)]
    assert "going on, because failOnDataLoss is false" in caplog.text
    assert task.session.fetcher.assigned[-1] == {T0: PartitionStart(offset=7, end_offset=9, topic_id=None)}


def test_nothing_is_read_of_a_topic_that_was_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, TopicRecreatedError("t", 0, 5, "a", "b"), item(T1, 1, 2), failOnDataLoss="false")
    assert task.read(TaskRange("t", 0, 5, 9), TaskRange("t", 1, 1, 2)) == [(1, 1)]


def test_waiting_ends_with_the_partition_and_how_far_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, item(T0, 5, 7))
    with pytest.raises(
        KafkaTimeoutError, match=r"t-0: no records from offset 7 on \(of 5 to 9\) within .* \(5000\)"
    ):
        task.read(TaskRange("t", 0, 5, 9))
    assert task.session.now == 5.0


def test_progress_starts_the_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch)
    session = task.session
    steps = [(4.0, item(T0, 5, 6)), (4.0, item(T0, 6, 7)), (4.0, item(T0, 7, 8))]

    def take(timeout_s: float) -> Any:
        seconds, step = steps.pop(0)
        assert timeout_s == 5.0
        session.now += seconds
        return step

    monkeypatch.setattr(session, "take", take)
    assert len(task.read(TaskRange("t", 0, 5, 8))) == 3


@pytest.mark.parametrize(
    ("gone", "said"),
    [(True, "the topic is gone"), (False, "the log ends at 7, before the end of the range, 9")],
)
def test_records_that_will_never_come_are_a_loss(
    monkeypatch: pytest.MonkeyPatch, gone: bool, said: str
) -> None:
    task = Task(monkeypatch)
    if gone:
        task.session.client.snapshot = undescribed(UnknownTopicOrPartitionError.code)
    else:
        task.session.fetcher.log_ends[T0] = 7
    with pytest.raises(DataLossError, match=said):
        task.read(TaskRange("t", 0, 5, 9))


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "amid it"])
def test_a_topic_that_may_not_be_described_is_not_gone_even_where_losses_are_allowed(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Executors may have other credentials than the driver: all records were passed over, with a warning that the topic was gone."""
    denied = undescribed(TopicAuthorizationFailedError.code)
    task = Task(monkeypatch, failOnDataLoss="false")
    if not late:
        task.session.client.snapshot = denied

    def take(timeout_s: float) -> None:
        task.session.client.snapshot = denied
        task.session.now += timeout_s

    monkeypatch.setattr(task.session, "take", take)
    with pytest.raises(TopicAuthorizationFailedError, match="in answer to Metadata for t: "):
        task.read(TaskRange("t", 0, 5, 9, ID))
    assert task.session.now == (5.0 if late else 0.0)


@pytest.mark.parametrize(
    "metadata", [undescribed(LeaderNotAvailableError.code), ClusterSnapshot()], ids=["none now", "no answer"]
)
def test_a_topic_whose_metadata_are_not_to_be_had_for_now_is_not_gone(
    monkeypatch: pytest.MonkeyPatch, metadata: ClusterSnapshot
) -> None:
    task = Task(monkeypatch, failOnDataLoss="false")
    task.session.client.snapshot = metadata
    task.session.client.trouble = lambda: "a:1 connection refused"
    with pytest.raises(KafkaTimeoutError, match=r"no records from offset 5 .*: a:1 connection refused$"):
        task.read(TaskRange("t", 0, 5, 9, ID))


@pytest.mark.parametrize(
    ("known", "later", "refreshed"),
    [(OTHER, [ID], 1), (OTHER, [OTHER, OTHER, ID], 3), (ID, [], 0), (None, [], 0)],
)
def test_metadata_that_are_older_than_the_plan_are_requested_again(
    monkeypatch: pytest.MonkeyPatch, known: bytes | None, later: list[bytes], refreshed: int
) -> None:
    task = Task(monkeypatch, item(T0, 5, 6))
    task.session.client.snapshot, task.session.ids = snapshot(known), later
    assert task.read(TaskRange("t", 0, 5, 6, ID)) == [(0, 5)]
    assert (task.session.refreshed, len(task.pauses)) == (refreshed, max(refreshed - 1, 0))


def test_a_range_is_read_on_once_its_topic_has_the_planned_id_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was suspended had named the id of a topic that was deleted before."""
    for lossy in ("true", "false"):
        task = Task(
            monkeypatch,
            item(T0, 5, 7),
            TopicRecreatedError("t", 0, 7, "a", "b"),
            item(T0, 7, 9),
            failOnDataLoss=lossy,
        )
        assert task.read(TaskRange("t", 0, 5, 9, ID)) == [(0, 5), (0, 6), (0, 7), (0, 8)]
        assert task.session.fetcher.assigned[-1] == {T0: PartitionStart(offset=7, end_offset=9, topic_id=ID)}


def test_a_topic_that_stays_with_another_id_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [TopicRecreatedError("t", p, 5, "a", "b") for p in (0, 1)]
    task = Task(monkeypatch, *lost, failOnDataLoss="false", **{"fetchOffset.numRetries": "2"})
    task.session.client.snapshot = snapshot(OTHER)
    assert task.read(TaskRange("t", 0, 5, 9, ID), TaskRange("t", 1, 5, 9, ID)) == []
    assert (task.session.refreshed, len(task.pauses)) == (3, 2)


def test_ids_that_go_back_and_forth_end_with_the_time_without_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(monkeypatch)

    def take(timeout_s: float) -> Any:
        task.session.now += 1.0
        raise TopicRecreatedError("t", 0, 5, "a", "b")

    monkeypatch.setattr(task.session, "take", take)
    with pytest.raises(TopicRecreatedError):
        task.read(TaskRange("t", 0, 5, 9, ID))
    assert task.session.now == 5.0


def test_a_range_without_an_id_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, TopicRecreatedError("t", 0, 5, "a", "b"), failOnDataLoss="false")
    assert task.read(TaskRange("t", 0, 5, 9)) == []
    assert len(task.session.fetcher.assigned) == 1
