"""Offsets in the form of Spark's own source: what it leaves out is kept, wherever the process is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kafka_actors.errors import ConfigError, TopicRecreatedError
from kafka_actors.spark.source.machines.offset_ranges import ResolvedRanges, TaskRange
from kafka_actors.spark.source.machines.stream_offsets import ObservedPartitions, StreamOffsets, restored
from kafka_actors.spark.source.offset_format import _KEPT, StateFiles
from kafka_actors.spark.source.options import parse_stream
from kafka_actors.spark.source.stream_brokers import StreamStart
from kafka_actors.spark.source.stream_driver import StreamDriver
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)
OLD, NEW = b"\x01" * 16, b"\x02" * 16
BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "startingOffsets": "latest"}


class FakeBrokers:
    """One partition, of a topic with this id, whose log ends at `end`."""

    def __init__(self) -> None:
        self.end = 0
        self.topic_id = OLD

    def start(self) -> StreamStart:
        return StreamStart(
            ResolvedRanges([TaskRange("t", 0, self.end, self.end)], []), {"t": self.topic_id}, {T0: 0}
        )

    def observed(self, base: StreamOffsets, *, since: float | None = None) -> ObservedPartitions:
        return ObservedPartitions({T0: self.end}, {"t": self.topic_id}, {T0: 0})

    def close(self) -> None:
        pass


class Query:
    """A query over one checkpoint, as Spark from 4.2 on drives its source. `log` has the ends that Spark has written,
    `finished` how many batches of them are done."""

    def __init__(self, directory: Path, **options: str) -> None:
        self.brokers = FakeBrokers()
        self.state = directory / "sources" / "0"
        self.log: list[dict[str, Any]] = []
        self.finished = 0
        self.options = {"offsetFormat": "spark", "stateLocation": str(self.state), **options}
        self.start()

    def start(self) -> None:
        """In a process of its own."""
        given = {**BASE, **{name: value for name, value in self.options.items() if value}}
        fake: Any = self.brokers
        self.driver = StreamDriver(parse_stream(given, limits=True), brokers=fake)

    def base(self) -> dict[str, Any]:
        if not self.finished:
            return self.driver.initial()
        return self.log[self.finished - 1]

    def plan(self, *, written: bool = True) -> dict[str, Any]:
        """The end of the next batch; `written`: whether Spark lived to write it."""
        found = json.loads(json.dumps(self.driver.latest(self.base())))
        if written and found != self.base():
            self.log.append(found)
        return found

    def read(self) -> list[TaskRange]:
        """The planned batch."""
        return [r for task in self.driver.tasks(self.base(), self.log[self.finished]) for r in task]

    def run(self) -> list[TaskRange]:
        """A batch, from its plan to its end."""
        self.plan()
        found = self.read()
        self.finished += 1
        return found


def test_spark_has_nothing_but_offsets(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.brokers.end = 7
    assert query.driver.initial() == {"t": {"0": 7}}
    query.brokers.end = 9
    assert query.plan() == {"t": {"0": 9}}
    assert query.read() == [TaskRange("t", 0, 7, 9, OLD)]
    assert query.driver.reported() == {"t": {"0": 9}}
    assert (query.state / "0").read_bytes() == b'\0v1\n{"t":{"0":7}}'


def test_a_first_batch_with_nothing_in_it_is_one(tmp_path: Path) -> None:
    """Spark always runs a first batch."""
    query = Query(tmp_path)
    query.brokers.end = 7
    query.log.append(query.plan())
    assert query.log == [{"t": {"0": 7}}]
    query.start()
    assert query.read() == []
    query.finished += 1
    query.start()
    query.brokers.end = 9
    assert query.run() == [TaskRange("t", 0, 7, 9, OLD)]


@pytest.mark.parametrize("written", [True, False])
def test_a_first_batch_from_latest_is_the_same_after_a_kill(tmp_path: Path, written: bool) -> None:
    query = Query(tmp_path)
    query.brokers.end = 7
    query.driver.initial()
    query.brokers.end = 9
    query.plan(written=written)
    query.start()
    query.brokers.end = 20
    if not written:
        assert query.plan() == {"t": {"0": 20}}
    assert query.read() == [TaskRange("t", 0, 7, 9 if written else 20, OLD)]


def test_a_kill_before_the_first_start_is_kept_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path)
    query.brokers.end = 7
    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "keep_first", _die)
        with pytest.raises(KeyboardInterrupt):
            query.driver.initial()
    query.start()
    query.brokers.end = 8
    assert query.driver.initial() == {"t": {"0": 8}}


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_kill_between_the_kept_offsets_and_sparks_own_log_changes_nothing(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for end in (3, 5):
        query.brokers.end = end
        query.run() if end > 3 else query.driver.initial()
    for end in (6, 7, 8):
        query.brokers.end = end
        query.plan(written=False)
        query.start()
    query.brokers.end = 9
    assert query.run() == [TaskRange("t", 0, 5, 9, OLD)]


def test_a_recreated_topic_is_noticed_after_a_restart(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.driver.initial()
    query.brokers.end = 5
    query.run()
    query.start()
    query.brokers.topic_id, query.brokers.end = NEW, 9
    with pytest.raises(TopicRecreatedError, match=f"id {OLD.hex()} is now {NEW.hex()}"):
        query.plan()
    query.options["failOnDataLoss"] = "false"
    query.start()
    query.plan()
    query.start()
    assert query.read() == [TaskRange("t", 0, 0, 9, NEW)]


@pytest.mark.parametrize("form", ["spark", "kafka-actors"])
def test_a_topic_that_was_recreated_before_the_first_batch_is_noticed(tmp_path: Path, form: str) -> None:
    query = Query(tmp_path, offsetFormat=form)
    query.brokers.end = 7
    first = query.driver.initial()
    query.brokers.topic_id, query.brokers.end = NEW, 9
    with pytest.raises(TopicRecreatedError, match=f"^t-0 at offset 7: .*id {OLD.hex()} is now {NEW.hex()}"):
        query.driver.latest(first)
    query.options["failOnDataLoss"] = "false"
    query.start()
    query.log.append(json.loads(json.dumps(query.driver.latest(first))))
    query.start()
    assert query.read() == [TaskRange("t", 0, 0, 9, NEW)]


def test_a_recreated_topic_whose_log_ends_at_the_same_offset_is_read_once_it_goes_on(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.driver.initial()
    query.brokers.end = 5
    query.run()
    query.brokers.topic_id = NEW
    assert query.plan() == {"t": {"0": 5}}
    query.start()
    assert query.plan() == {"t": {"0": 5}}
    query.brokers.end = 6
    assert query.run() == [TaskRange("t", 0, 0, 6, NEW)]


def test_a_topic_that_was_recreated_while_sparks_own_source_had_the_query_is_noticed(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.driver.initial()
    query.brokers.end = 5
    query.run()
    query.log.append({"t": {"0": 8}})  # by Spark's own source
    query.finished += 1
    query.brokers.end = 12
    query.start()
    assert query.run() == [TaskRange("t", 0, 8, 12, OLD)]
    query.log.append({"t": {"0": 15}})
    query.finished += 1
    query.brokers.topic_id, query.brokers.end = NEW, 20
    query.start()
    with pytest.raises(TopicRecreatedError):
        query.plan()
    query.options["failOnDataLoss"] = "false"
    query.start()
    query.plan()
    query.start()
    assert query.read() == [TaskRange("t", 0, 0, 20, NEW)]


def test_a_first_batch_of_sparks_own_source_is_finished_from_where_that_source_began(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.state.mkdir(parents=True)
    (query.state / "0").write_bytes(b'\0v1\n{"t":{"0":4}}\n')
    query.log.append({"t": {"0": 6}})
    query.brokers.end = 30
    assert query.read() == [TaskRange("t", 0, 4, 6)]
    query.options["offsetFormat"] = ""  # where it is said, this form reads it as well
    query.start()
    assert query.read() == [TaskRange("t", 0, 4, 6)]
    query.options["stateLocation"] = ""
    query.start()
    with pytest.raises(
        ConfigError, match="has a first batch that Spark's own source planned and didn't finish"
    ):
        query.read()


def test_a_query_changes_its_form_from_start_to_start(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.driver.initial()
    for end, form in enumerate(["spark", "kafka-actors"] * 3, start=1):
        query.options["offsetFormat"] = form
        query.start()
        query.brokers.end = end
        query.plan()
        query.start()
        assert query.read() == [TaskRange("t", 0, end - 1, end, OLD)]
        query.finished += 1
        assert ("@topic_ids" in query.log[-1]) == (form == "kafka-actors")


def test_the_directory_of_another_source_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.state.mkdir(parents=True)
    (query.state / "0").write_bytes(b'\0v1\n{"other":{"0":4}}')
    with pytest.raises(ConfigError, match=r"^stateLocation: is .* it has the first offsets of other-0"):
        query.driver.initial()


def test_an_idle_query_writes_nothing(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.driver.initial()
    query.brokers.end = 5
    query.run()
    before = sorted(path.name for path in (query.state / "kafka_actors").iterdir())
    for _ in range(5):
        query.plan()
    query.start()
    assert query.driver.initial() == {"t": {"0": 0}}
    query.plan()
    assert sorted(path.name for path in (query.state / "kafka_actors").iterdir()) == before


def test_spark_4_1_asks_without_saying_where_the_batch_begins(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.brokers.end = 7
    first = query.driver.initial()
    assert query.driver.latest() == first
    query.brokers.end = 9
    ends = [query.driver.latest() for _ in range(3)]
    assert ends == [{"t": {"0": 9}}] * 3
    assert [r for task in query.driver.tasks(first, ends[0]) for r in task] == [TaskRange("t", 0, 7, 9, OLD)]
    query.start()  # killed in its first batch
    query.brokers.end = 12
    assert query.driver.initial() == first
    assert [r for task in query.driver.tasks(first, ends[0]) for r in task] == [TaskRange("t", 0, 7, 9, OLD)]
    assert query.driver.latest() == {"t": {"0": 12}}
    query.start()  # killed before Spark had the second
    query.brokers.end = 15
    query.driver.latest()
    assert [r for task in query.driver.tasks(ends[0], {"t": {"0": 15}}) for r in task] == [
        TaskRange("t", 0, 9, 15, OLD)
    ]


# ---------------------------------------------------------------- what is kept


def test_offsets_that_were_kept_are_what_they_were_the_newest_first() -> None:
    kept = [StreamOffsets({T0: end}, {"t": topic_id}) for end, topic_id in ((5, NEW), (3, NEW), (5, OLD))]
    assert restored(StreamOffsets({T0: 5}), kept) is kept[0]
    assert restored(StreamOffsets({T0: 4}), kept) == StreamOffsets({T0: 4}, {"t": NEW})
    assert restored(StreamOffsets({T0: 4}), []) == StreamOffsets({T0: 4})
    other = TopicPartition("other", 0)
    assert restored(StreamOffsets({other: 4}), kept) == StreamOffsets({other: 4})


def test_old_offsets_go_and_another_process_finds_the_others(tmp_path: Path) -> None:
    state = StateFiles(str(tmp_path))
    for end in range(_KEPT + 20):
        state.keep(StreamOffsets({T0: end}, {"t": OLD}))
    ends = [kept.by_partition[T0] for kept in StateFiles(str(tmp_path)).kept()]
    assert ends == list(range(_KEPT + 19, 19, -1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kafka_actors"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("kafka_actors/3", '{"format": 2}', "is not of format 1, which this version reads"),
        ("kafka_actors/3", "", "is not JSON"),
        ("0", "v7\n{}", "has version v7"),
        ("0", "\0v1\n{", "is not JSON"),
    ],
)
def test_files_of_another_kind_are_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / "kafka_actors").mkdir()
    (tmp_path / name).write_text(text)
    state = StateFiles(str(tmp_path))
    with pytest.raises(ConfigError, match=f"^stateLocation: {tmp_path}/{name} {said}"):
        list(state.kept()), state.first()


def test_a_place_that_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"^stateLocation: .*file/0: FileExistsError"):
        StateFiles(str(tmp_path / "file")).keep_first({T0: 1})


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"offsetFormat": "spark"}, "offsetFormat: is 'spark', which has no place for topic ids"),
        ({"offsetFormat": "json"}, "offsetFormat: is 'json': accepts 'kafka-actors' or 'spark'"),
        ({"stateLocation": "here/there"}, "stateLocation: is 'here/there': accepts a whole path, or a URI"),
        ({"stateLocation": "s3a://b/c"}, "stateLocation: is 's3a://b/c', by Hadoop's name"),
    ],
)
def test_what_cannot_be_is_said_before_anything_connects(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        parse_stream({**BASE, **options}, limits=True)


def test_the_first_start_of_two_sources_is_the_kept_one(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.driver._options = replace(query.driver._options, begin=StreamOffsets({T0: 3}, initial=True))
    assert query.driver.initial() == {"t": {"0": 3}}
    query.start()
    query.driver._options = replace(query.driver._options, begin=StreamOffsets({T0: 6}, initial=True))
    assert query.driver.initial() == {"t": {"0": 3}}
