"""Where a stream starts and what brokers hold now, by a client whose answers may be missing or behind for a moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.errors import ConfigError, NonEmptyGroupError
from kafka_actors.net import ListedOffset
from kafka_actors.spark.source import stream_brokers
from kafka_actors.spark.source.machines.offset_ranges import LogRange
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.options import parse_stream
from kafka_actors.spark.source.stream_brokers import StreamBrokers
from kafka_actors.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER = b"i" * 16, b"o" * 16


class Brokers:
    """Planning's client: partitions and log ends as scripted, each list's last entry for ever."""

    def __init__(self, options: Any, clock: Any) -> None:
        self.client = SimpleNamespace()
        self.present_now = [[T0, T1]]
        self.ids = [ID]
        self.ends: list[dict[TopicPartition, int] | None] = [{T0: 10, T1: 20}]
        self.starts = {T0: 2, T1: 3}
        self.epoch = 5
        self.epoch_end = 100
        self.asked: list[dict[TopicPartition, tuple[int, int]]] = []
        self.known: list[Mapping[TopicPartition, int] | None] = []
        self.refreshes: list[float | None] = []
        self.error: ConfigError | None = None
        self.checked_described = 0

    async def connect(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def refresh(self, since: float | None = None) -> None:
        self.refreshes.append(since)
        if since is None and len(self.present_now) > 1:
            self.present_now.pop(0)
        if since is None and len(self.ids) > 1:
            self.ids.pop(0)

    async def partitions(self) -> list[TopicPartition]:
        if self.error is not None:
            raise self.error
        return self.present()

    def present(self) -> list[TopicPartition]:
        return self.present_now[0]

    def topic_ids(self, partitions: Any) -> dict[str, bytes]:
        return {tp.topic: self.ids[0] for tp in partitions}

    def check_described(self) -> None:
        self.checked_described += 1

    async def logs(
        self, partitions: list[TopicPartition], start: Any, end: Any
    ) -> dict[TopicPartition, LogRange]:
        return {tp: LogRange(self.starts[tp], 100) for tp in partitions}

    async def listed_while_there(
        self, timestamps: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, ListedOffset] | None:
        self.known.append(epochs)
        if set(timestamps.values()) == {EARLIEST}:
            return {tp: ListedOffset(self.starts[tp], -1, -1) for tp in timestamps}
        assert set(timestamps.values()) <= {LATEST}
        ends = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return None if ends is None else {tp: ListedOffset(ends[tp], -1, self.epoch) for tp in timestamps}

    async def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        self.asked.append(dict(epochs))
        return dict.fromkeys(epochs, self.epoch_end)


class Groups:
    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.members = ""
        self.asked_for: list[tuple[str, Mapping[str, bytes]]] = []
        self.stable: list[TopicPartition] = []

    async def committed(
        self, group: str, deadline: Any, ids: Mapping[str, bytes], *, stable: list[TopicPartition]
    ) -> dict[TopicPartition, Any]:
        self.asked_for.append((group, ids))
        self.stable = stable
        return {tp: OffsetAndMetadata(offset, "", -1) for tp, offset in self.offsets.items()}

    async def members_of(self, group: str, deadline: Any) -> str:
        return self.members

    async def commit(self, group: str, offsets: Any, deadline: Any, ids: Mapping[str, bytes]) -> None:
        self.committed_ids = ids


class InThisThread:
    """Runs work at once, where the product has a thread."""

    def __init__(self, name: str) -> None:
        self.stopped = False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    def stop(self) -> None:
        self.stopped = True


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.pauses: list[float] = []
        self.groups = Groups()
        monkeypatch.setattr(stream_brokers, "PlanningBrokers", Brokers)
        monkeypatch.setattr(stream_brokers, "IoThread", InThisThread)
        monkeypatch.setattr(stream_brokers, "CallDeadline", lambda client: None)
        monkeypatch.setattr(asyncio, "sleep", self._pause)
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
        if "subscribePattern" in options:
            del given["subscribe"]
        self.stream = StreamBrokers(parse_stream(given, limits=True), clock=lambda: 50.0)
        self.brokers: Any = self.stream._brokers
        monkeypatch.setattr(self.stream, "_groups", self.groups)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def starts(scene: Scene) -> dict[TopicPartition, int]:
    return {r.tp: r.start for r in scene.stream.start().found.ranges}


def test_a_stream_starts_where_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts(Scene(monkeypatch, startingOffsets="earliest")) == {T0: 2, T1: 3}
    assert starts(Scene(monkeypatch)) == {T0: 100, T1: 100}
    found = Scene(monkeypatch, startingOffsets='{"t": {"0": 5, "1": -2}}').stream.start()
    assert [r.start for r in found.found.ranges] == [5, 3]
    assert (found.topic_ids, found.log_starts) == ({"t": ID}, {T0: 2, T1: 3})


def test_committed_offsets_count_for_the_topic_of_this_id_and_others_start_at_the_earliest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(monkeypatch, startingOffsets="committed", **{"kafka.group.id": "g"})
    scene.groups.offsets = {T1: 42}
    with caplog.at_level(logging.WARNING):
        assert starts(scene) == {T0: 2, T1: 42}
    assert scene.groups.asked_for == [("g", {"t": ID})]
    assert scene.groups.stable == [T0, T1]
    assert "group g has committed nothing for 1 of 2 partitions" in caplog.text


def test_a_pattern_may_wait_for_its_first_topic_and_a_name_may_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patterned = Scene(monkeypatch, subscribePattern="t.*")
    patterned.brokers.error = ConfigError("subscribePattern", "no topic")
    with caplog.at_level(logging.WARNING):
        assert starts(patterned) == {}
    assert "the stream waits for one" in caplog.text
    named = Scene(monkeypatch)
    named.brokers.error = ConfigError("subscribe", "no topic")
    with pytest.raises(ConfigError, match="no topic"):
        named.stream.start()


def test_metadata_of_the_last_second_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    observed = scene.stream.observed(StreamOffsets({T0: 1, T1: 1}))
    assert scene.brokers.refreshes == [49.0]
    assert (observed.ends, observed.topic_ids, observed.starts) == ({T0: 10, T1: 20}, {"t": ID}, {})
    scene.stream.observed(StreamOffsets({T0: 1, T1: 1}), since=7.0)
    assert scene.brokers.refreshes[-1] == 7.0


def test_a_new_partition_is_read_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Scene(monkeypatch).stream.observed(StreamOffsets({T0: 1})).starts == {T1: 3}


def test_a_partition_that_a_broker_has_not_heard_of_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, **{"fetchOffset.retryIntervalMs": "200"})
    scene.brokers.present_now = [[T0], [T0], [T0, T1]]
    observed = scene.stream.observed(StreamOffsets({T0: 1, T1: 1}))
    assert observed.ends == {T0: 10, T1: 20}
    assert scene.pauses == [0.2, 0.2]


def test_a_partition_that_is_gone_is_waited_for_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, **{"fetchOffset.numRetries": "2"})
    scene.brokers.present_now = [[T0]]
    assert scene.stream.observed(StreamOffsets({T0: 1, T1: 1})).ends == {T0: 10}
    assert len(scene.pauses) == 2


def test_a_partition_that_stays_away_is_waited_for_once_until_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With failOnDataLoss=false a stream keeps the offsets of a topic that is gone, and had each of its triggers wait for it."""
    scene = Scene(monkeypatch)
    base = StreamOffsets({T0: 1, T1: 1})
    for there, waits in (([T0], 3), ([T0], 3), ([T0, T1], 3), ([T0], 6)):
        scene.brokers.present_now = [there]
        assert scene.stream.observed(base).ends.keys() == set(there)
        assert len(scene.pauses) == waits
    assert scene.brokers.checked_described == 4


def test_an_end_before_the_position_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.brokers.ends = [{T0: 3, T1: 20}, {T0: 3, T1: 20}, {T0: 10, T1: 20}]
    assert scene.stream.observed(StreamOffsets({T0: 5, T1: 1}, {"t": ID})).ends == {T0: 10, T1: 20}
    assert len(scene.pauses) == 2


def test_a_topic_is_made_anew_only_once_metadata_stay_with_its_other_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that was suspended names the id of a topic that was deleted before. KIP-516: no topic gets an id of before."""
    base = StreamOffsets({T0: 1, T1: 1}, {"t": ID})
    scene = Scene(monkeypatch)
    scene.brokers.ids = [OTHER, OTHER, ID]
    assert scene.stream.observed(base).topic_ids == {"t": ID}
    assert len(scene.pauses) == 2
    scene.brokers.ids = [OTHER]
    assert scene.stream.observed(base).topic_ids == {"t": OTHER}
    assert len(scene.pauses) == 2 + 3
    assert scene.stream.observed(base).topic_ids == {"t": OTHER}
    assert len(scene.pauses) == 2 + 3, (
        "Spark's own offsets have no ids, so the stream may ask at each trigger"
    )


def test_partitions_that_go_during_a_look_up_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.brokers.present_now = [[T0, T1], [T0]]
    scene.brokers.ends = [None, {T0: 10}]
    assert scene.stream.observed(StreamOffsets({T0: 1, T1: 1})).ends == {T0: 10}


@pytest.fixture
def committing(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch, commitOffsets="true", **{"kafka.group.id": "g"})


def test_a_group_with_members_is_refused(committing: Scene) -> None:
    committing.stream.check_group()
    committing.groups.members = "2: consumer-1, consumer-2"
    with pytest.raises(
        NonEmptyGroupError, match=r"commitOffsets: group 'g' has members \(2: consumer-1, consumer-2\)"
    ):
        committing.stream.check_group()


def test_offsets_are_committed_with_the_ids_of_the_topics_that_they_are_of(committing: Scene) -> None:
    committing.brokers.ids = [OTHER]  # metadata that came since
    committing.stream.commit({T0: 5}, {"t": ID})
    assert committing.groups.committed_ids == {"t": ID}


def test_the_thread_ends_with_the_connections(committing: Scene) -> None:
    committing.stream.close()
    assert committing.stream._io.stopped


def test_a_position_of_an_older_leader_is_compared_with_the_log_of_the_new_one_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-320: the log may have been cut, and be longer than before by now."""
    scene = Scene(monkeypatch)
    base = StreamOffsets({T0: 8, T1: 8}, leader_epochs={T0: 4, T1: 5})
    assert scene.stream.observed(base).parted == {}
    assert scene.stream.observed(base).leader_epochs == {T0: 5, T1: 5}
    assert scene.brokers.asked == [{T0: (5, 4)}]
    scene.brokers.epoch, scene.brokers.epoch_end = 6, 7
    assert scene.stream.observed(base).parted == {T0: 7, T1: 7}
    assert scene.stream.observed(base).parted == {T0: 7, T1: 7}
    assert scene.brokers.asked[1:] == 2 * [{T0: (6, 4), T1: (6, 5)}]
    scene.brokers.epoch_end = -1
    assert scene.stream.observed(base).parted == {}, "nobody knows"


def test_the_ends_are_asked_of_a_leader_that_the_stream_has_read_from_or_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A suspended broker that goes on takes itself for the leader, and the log for shorter. A topic that was made anew counts from 0."""
    scene = Scene(monkeypatch)
    for ids, known in (({"t": ID}, {T0: 6}), ({"t": b"another" * 2}, {}), ({}, {})):
        scene.stream.observed(StreamOffsets({T0: 8, T1: 8}, ids, leader_epochs={T0: 6}))
        assert scene.brokers.known.pop(0) == known
        scene.brokers.known.clear()


def test_nobody_asks_about_a_position_whose_leader_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.stream.observed(StreamOffsets({T0: 8, T1: 8}, leader_epochs={T1: 5}))
    scene.stream.observed(StreamOffsets({T0: 8, T1: 8}, {"t": b"another" * 2}, leader_epochs={T1: 1}))
    assert scene.brokers.asked == []
