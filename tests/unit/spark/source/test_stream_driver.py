"""What a stream answers at its triggers where brokers refuse or are slow: with brokers that only a test has."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from fakes.registries import RegistryInMemory
from msgspec.structs import replace

from kafka_actors.errors import (
    ConfigError,
    DataLossError,
    KafkaActorsError,
    NonEmptyGroupError,
    StartLostError,
)
from kafka_actors.schemas import AvroDecoder
from kafka_actors.spark.source.machines.offset_ranges import ResolvedRanges, TaskRange
from kafka_actors.spark.source.machines.stream_offsets import ObservedPartitions, StreamOffsets
from kafka_actors.spark.source.options import parse_stream
from kafka_actors.spark.source.query_schema import QuerySchema
from kafka_actors.spark.source.stream_brokers import StreamStart
from kafka_actors.spark.source.stream_driver import StreamDriver
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)


class FakeBrokers:
    """One partition whose log ends at `end`; commits are kept or refused."""

    def __init__(self) -> None:
        self.end = 0
        self.asked = 0
        self.commits: list[dict[TopicPartition, int]] = []
        self.refusal: KafkaActorsError | None = None
        self.begin = 0
        self.log_start = 0
        self.bases: list[tuple[StreamOffsets, float | None]] = []

    def start(self) -> StreamStart:
        return StreamStart(
            ResolvedRanges([TaskRange("t", 0, self.begin, self.begin)], []), {}, {T0: self.log_start}
        )

    def observed(self, base: StreamOffsets, *, since: float | None = None) -> ObservedPartitions:
        self.bases.append((base, since))
        return ObservedPartitions({T0: self.end})

    def check_group(self) -> None:
        self.asked += 1

    def commit(self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> None:
        if self.refusal is not None:
            self.asked += 1
            raise self.refusal
        self.commits.append(dict(offsets))


class Scene:
    def __init__(
        self, ends: StreamOffsets | None = None, schema: QuerySchema | None = None, **options: str
    ) -> None:
        self.now = 0.0
        self.base: int | None = None
        self.brokers = FakeBrokers()
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.group.id": "g", **options}
        fake: Any = self.brokers
        parsed = replace(parse_stream(given, limits=True), ends=ends)
        self.driver = StreamDriver(parsed, lambda: self.now, fake, schema)

    def latest(self, offset: int) -> int:
        """As Spark asks: when a batch begins it says that its checkpoint has what the batch begins with."""
        if self.base not in (None, offset):
            self.driver.checkpointed({"t": {"0": self.base}})
        self.base = offset
        found: int = self.driver.latest({"t": {"0": offset}})["t"]["0"]
        return found


def test_a_commit_that_is_refused_is_tried_again_after_a_while_or_with_the_next_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(commitOffsets="true")
    scene.brokers.end = 5
    scene.latest(5)
    assert scene.brokers.commits == [{T0: 5}]
    scene.brokers.refusal = NonEmptyGroupError("group 'g' has members")
    scene.brokers.asked = 0
    scene.brokers.end = 7
    with caplog.at_level(logging.WARNING, "kafka_actors"):
        for _ in range(100):
            assert scene.latest(7) == 7
    assert scene.brokers.asked == 1
    assert caplog.text.count("group g: offsets are not committed") == 1
    scene.now += 11
    scene.latest(7)
    scene.brokers.end = 8
    scene.latest(8)
    assert scene.brokers.asked == 3
    scene.brokers.refusal = None
    scene.now += 11
    scene.latest(8)
    assert scene.brokers.commits[-1] == {T0: 8}


def test_the_group_is_not_ahead_of_a_checkpoint_that_is_behind_the_batches() -> None:
    """With asyncProgressTrackingEnabled: `commit` comes when a later end is safe, if at all."""
    scene = Scene(commitOffsets="true")
    scene.brokers.end = 30
    for offset in (5, 10, 15):
        scene.driver.latest({"t": {"0": offset}})
    assert scene.brokers.commits == [{T0: 5}]
    scene.driver.checkpointed({"t": {"0": 10}})
    scene.driver.latest({"t": {"0": 20}})
    scene.driver.latest({"t": {"0": 20}})
    assert scene.brokers.commits == [{T0: 5}, {T0: 10}]


def test_nothing_is_committed_unless_it_is_asked_for() -> None:
    scene = Scene()
    scene.brokers.end = 5
    scene.latest(3)
    assert (scene.brokers.commits, scene.brokers.asked) == ([], 0)


def test_a_loss_that_is_passed_over_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    strict, lenient = Scene(), Scene(failOnDataLoss="false")
    for scene in (strict, lenient):
        scene.brokers.end = 4
    with pytest.raises(DataLossError, match=r"^t-0 at offset 9: the log ends at 4: it was truncated$"):
        strict.latest(9)
    with caplog.at_level(logging.WARNING, "kafka_actors"):
        assert [lenient.latest(9) for _ in range(3)] == [4, 4, 4]
    assert caplog.text.count("t-0 at offset 9") == 1


def test_a_batch_is_held_back_until_there_is_enough() -> None:
    scene = Scene(minOffsetsPerTrigger="10", maxTriggerDelay="60s", maxOffsetsPerTrigger="12")
    scene.brokers.end = 3
    assert scene.latest(0) == 3
    scene.brokers.end = 12
    assert scene.latest(3) == 3
    scene.brokers.end = 30
    assert scene.latest(3) == 15
    assert scene.driver.latest({"t": {"0": 3}}, limited=False)["t"]["0"] == 30
    scene.brokers.end = 31
    scene.now = 59.0
    assert scene.latest(30) == 30
    scene.now = 60.0
    assert scene.latest(30) == 31


def test_progress_says_how_far_the_planned_end_is_behind() -> None:
    scene = Scene(maxOffsetsPerTrigger="4")
    assert scene.driver.reported() is None
    scene.brokers.end = 10
    scene.latest(0)
    reported = scene.driver.reported()
    assert reported is not None
    assert reported["t"] == {"0": 10}
    assert reported["@metrics"]["maxOffsetsBehindLatest"] == "6"


def test_given_ends_hold_whatever_the_trigger_and_no_loss_before_them_is_passed_over() -> None:
    scene = Scene(StreamOffsets({T0: 20}), maxOffsetsPerTrigger="12", failOnDataLoss="false")
    scene.brokers.end = 30
    assert scene.latest(0) == 12
    scene.driver.prepare_available_now()
    scene.brokers.end = 40
    assert [scene.latest(12), scene.latest(20)] == [20, 20]
    reported = scene.driver.reported()
    assert reported is not None
    assert (reported["t"], reported["@metrics"]["maxOffsetsBehindLatest"]) == ({"0": 20}, "0")
    scene.brokers.end = 19
    with pytest.raises(DataLossError, match=r"^t-0 at offset 12: the log ends at 19, before 20$"):
        scene.latest(12)


@pytest.mark.parametrize("option", [{"startingTimestamp": "5"}, {"startingOffsets": "committed"}])
def test_a_start_behind_the_given_end_leaves_nothing_to_read(option: dict[str, str]) -> None:
    scene = Scene(StreamOffsets({T0: 20}), **option)
    scene.brokers.begin, scene.brokers.end = 25, 30
    first = scene.driver.initial()
    assert first["t"] == {"0": 20}
    assert scene.driver.latest(first)["t"] == {"0": 20}


def test_a_start_behind_the_given_end_is_a_loss_where_the_log_begins_there() -> None:
    scene = Scene(StreamOffsets({T0: 20}), startingOffsets="earliest")
    scene.brokers.begin = scene.brokers.log_start = 25
    scene.brokers.end = 30
    with pytest.raises(StartLostError):
        scene.driver.latest(scene.driver.initial())


def test_offsets_behind_the_given_end_are_refused() -> None:
    scene = Scene(StreamOffsets({T0: 20}), startingOffsets='{"t": {"0": 21}}')
    scene.brokers.begin = 21
    with pytest.raises(ConfigError, match=r"^startingOffsets: has 21 for t-0, which is to be read up to 20$"):
        scene.driver.initial()


def test_a_stream_that_is_told_where_to_begin_asks_nobody() -> None:
    begin = StreamOffsets({T0: 7}, initial=True)
    scene = Scene()
    scene.brokers.begin = 9
    scene.driver._options = replace(scene.driver._options, begin=begin)
    assert scene.driver.initial() == begin.to_json()


def test_what_is_there_now_is_asked_once_with_what_was_read() -> None:
    """A broker that is behind may not know all of it: with what was read it is seen that another has to be asked."""
    scene = Scene()
    scene.brokers.end = 9
    scene.now = 3.0
    scene.driver.prepare_available_now()
    assert scene.brokers.bases == []
    scene.now = 4.0
    assert scene.latest(5) == 9
    scene.brokers.end = 12
    assert scene.latest(9) == 9
    assert [(base.by_partition, since) for base, since in scene.brokers.bases] == [
        ({T0: 5}, 3.0),
        ({T0: 9}, None),
    ]


# ---------------------------------------------------------------- the schema of values


def query_schema(version: int) -> QuerySchema:
    """The query was planned with this version of two that give the same columns."""
    registry = RegistryInMemory()
    for doc in ("one", "two"):
        fields = [{"name": "id", "type": "long"}]
        registry.add("t-value", {"type": "record", "name": "Order", "doc": doc, "fields": fields})
    chosen = registry.schema_of("t-value", version)
    decoder = AvroDecoder(chosen.text, registry=registry)
    return QuerySchema(decoder, registry, chosen, pinned=False, option="o", pin="version=")


ONE = {"id": 1, "subject": "t-value", "version": 1}
TWO = {"id": 2, "subject": "t-value", "version": 2}


def test_the_end_of_a_batch_has_the_schema_that_the_query_began_with() -> None:
    scene = Scene(schema=query_schema(2))
    scene.brokers.end = 5
    first = scene.driver.initial()
    assert "@schema" not in first
    end = scene.driver.latest(first)
    assert end["@schema"] == TWO
    assert scene.driver.read_by(first, end) is None
    again = Scene(schema=query_schema(2))
    again.brokers.end = 9
    later = again.driver.latest({"t": {"0": 5}, "@schema": ONE})
    assert later == {"t": {"0": 9}, "@schema": ONE}
    read_by = again.driver.read_by({"t": {"0": 5}, "@schema": ONE}, later)
    assert read_by is not None
    assert read_by.schema.id == 1


def test_without_new_records_the_offsets_stay_as_they_are() -> None:
    """Others would be a batch, which Spark would run."""
    scene = Scene(schema=query_schema(2))
    scene.brokers.end = 5
    for offsets in ({"t": {"0": 5}}, {"t": {"0": 5}, "@schema": ONE}):
        assert scene.driver.latest(offsets) == offsets


def test_a_query_that_decodes_no_more_has_no_schema() -> None:
    scene = Scene()
    scene.brokers.end = 9
    assert scene.driver.latest({"t": {"0": 5}, "@schema": ONE}) == {"t": {"0": 9}}
