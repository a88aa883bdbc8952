"""`kafka-actors consume`: where it begins and stops, what it commits, and its errors; the consumer is a stand-in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fakes.batches import records

from kafka_actors.cli.consume import Extent, StartOffset, copy, start_offset, starts_of
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import UsageError
from kafka_actors.net import ListedOffset
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class StandIn:
    """A consumer of the topic "orders", whose logs are `logs`; a position behind the last record is `hidden` further, as behind
    the marker of a transaction. At the end of all logs it raises what stands in `at_the_end`."""

    logs: dict[TopicPartition, list[bytes | None]]
    first = 0
    hidden = 0
    at_the_end: list[BaseException]
    made: list[StandIn]

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.at: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.calls: list[Any] = []
        self.made.append(self)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {tp.partition for tp in self.logs} if topic == "orders" else None

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.first)

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.first + len(self.logs[tp]) + self.hidden for tp in partitions}

    def offsets_for_times(
        self, times: dict[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        ends = self.end_offsets(list(times))
        return {tp: ListedOffset(at, at, -1) if at < ends[tp] else None for tp, at in times.items()}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.at = dict.fromkeys(partitions, -1)

    def subscribe(self, topics: list[str]) -> None:
        self.calls.append(("subscribe", topics))
        self.at = dict.fromkeys(self.logs, self.first)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.at[tp] = offset

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    def assignment(self) -> set[TopicPartition]:
        return set(self.at)

    def position(self, tp: TopicPartition, *, timeout_ms: float) -> int:
        return self.at[tp]

    def poll_batch(self, *, timeout_ms: float) -> Any:
        for tp, at in self.at.items():
            values = self.logs[tp][at - self.first :]
            if values and tp not in self.paused:
                self.at[tp] = at + len(values) + self.hidden
                return records(values, partition=tp.partition, first=at, timestamp_ms=at)
        if self.at_the_end:
            raise self.at_the_end.pop()
        return None

    def commit(self, offsets: Any = None) -> None:
        self.calls.append(("commit", dict(self.at) if offsets is None else offsets))

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    monkeypatch.setattr("kafka_actors.consumer.Consumer", StandIn)
    monkeypatch.setattr(StandIn, "logs", {P0: [b"a", b"b", b"c"], P1: [b"x", None]}, raising=False)
    monkeypatch.setattr(StandIn, "at_the_end", [], raising=False)
    monkeypatch.setattr(StandIn, "made", [], raising=False)
    return StandIn.made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command_line(["consume", *arguments])
        return code, *capsys.readouterr()

    return run


# ---------------------------------------------------------------- where it begins and stops


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["-e"], "a b c x  "),
        (["-e", "--offset", "beginning"], "a b c x  "),
        (["-e", "--offset", "1"], "b c  "),
        (["-e", "--offset", "-1"], "c  "),
        (["-e", "--offset", "-99"], "a b c x  "),
        (["-e", "--offset", "end"], ""),
        (["-e", "--from-time", "2"], "c "),
        (["-e", "--from-time", "1970-01-01T00:00:00.001"], "b c  "),
        (["-e", "--from-time", "99"], ""),
        (["--until", "1"], "a x "),
        (["--until", "2"], "a b x  "),
        (["--until", "1970-01-02T00:00:00"], "a b c x  "),
        (["--from-time", "1", "--until", "2"], "b  "),
        (["-c", "2"], "a b "),
        (["-c", "4"], "a b c x "),
        (["-e", "-c", "99"], "a b c x  "),
    ],
)
def test_records_are_printed_from_here_to_there(consumers, run, arguments, printed):
    assert run("-t", "orders", "-f", "%s ", *arguments) == (0, printed, "")
    assert consumers[0].calls == ["close"]
    assert consumers[0].config["group_id"] is None


def test_some_partitions_may_be_named(consumers, run):
    assert run("-t", "orders:1", "-e", "-f", "%p:%s ") == (0, "1:x 1: ", "")


def test_a_log_may_end_with_what_is_no_record(consumers, run, monkeypatch):
    monkeypatch.setattr(StandIn, "hidden", 1)
    assert run("-t", "orders", "-e", "-f", "%s ") == (0, "a b c x  ", "")


def test_a_log_that_has_lost_its_beginning(consumers, run, monkeypatch):
    monkeypatch.setattr(StandIn, "first", 100)
    assert run("-t", "orders:0", "-e", "-f", "%o ") == (0, "100 101 102 ", "")
    says = "kafka-actors: error: --offset 99: orders-0 begins at 100 and ends at 103\n"
    assert run("-t", "orders:0", "-e", "--offset", "99") == (2, "", says)


def test_a_partition_that_comes_later_in_a_group_is_read_to_its_end():
    class Consumer:
        at: dict[TopicPartition, int] = {}

        def assignment(self) -> set[TopicPartition]:
            return set(self.at)

        def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 5)

        def position(self, tp: TopicPartition, *, timeout_ms: float) -> int:
            if self.at[tp] < 0:
                raise UsageError("not assigned")
            return self.at[tp]

    consumer: Any = Consumer()
    extent = Extent(ends={P0: 3})
    assert not extent.complete(consumer), "nothing is assigned yet"
    consumer.at = {P0: 3, P1: 4}
    assert not extent.complete(consumer)
    consumer.at[P1] = -1
    assert not extent.complete(consumer), "it was revoked this very moment"
    consumer.at[P1] = 5
    assert extent.complete(consumer)
    consumer.at = {P1: 5}
    assert extent.complete(consumer), "the other one is another member's now"


def test_an_extent_counts_what_was_taken():
    extent = Extent(5, {P0: 12})
    assert extent.rows(P0, np.array([10, 11, 14])) == 2
    extent.took(P0, 12, 2)
    assert extent.rows(P1, np.arange(100)) == 3
    extent.took(P1, 3, 3)
    assert extent.written == {P0: 12, P1: 3}
    assert extent.rows(P1, np.arange(3, 100)) == 0


def test_while_there_are_no_records_the_reader_is_looked_for(consumers):
    consumer: Any = StandIn({})
    consumer.assign([P0])
    consumer.seek(P0, 3)

    def gone() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        copy(consumer, Extent(), lambda batch: None, gone)


@pytest.mark.parametrize(
    ("offset", "from_time", "start"),
    [
        (None, None, None),
        ("beginning", None, StartOffset("beginning")),
        ("end", None, StartOffset("end")),
        ("7", None, StartOffset("offset", 7)),
        ("-7", None, StartOffset("last", 7)),
        (None, "1700000000000", StartOffset("time", 1_700_000_000_000)),
        (None, "1970-01-01T01:00:00+01:00", StartOffset("time", 0)),
    ],
)
def test_starts(offset, from_time, start):
    assert start_offset(offset, from_time) == start


def test_a_time_behind_all_records_is_the_end(consumers):
    consumer: Any = StandIn({})
    assert starts_of(consumer, [P0, P1], StartOffset("time", 2)) == {P0: 2, P1: 2}
    assert starts_of(consumer, [P0, P1], StartOffset("time", 9)) == {P0: 3, P1: 2}


# ---------------------------------------------------------------- forms


def test_json_has_a_line_for_each_record(consumers, run):
    code, out, _ = run("-t", "orders:0", "-e", "-o", "json")
    assert [json.loads(line)["value"] for line in out.splitlines()] == ["a", "b", "c"]
    assert code == 0


def test_keys_stand_before_their_delimiter_and_nulls_have_a_text(consumers, run):
    assert run("-t", "orders:1", "-e", "-K", r"\t", "-Z") == (0, "NULL\tx\nNULL\tNULL\n", "")


def test_a_file_is_named_behind_the_options(consumers, run, tmp_path):
    file = tmp_path / "orders.parquet"
    assert run("-t", "orders", "-e", "-o", "parquet", str(file)) == (0, "", "")
    assert pq.read_table(file)["value"].to_pylist() == [b"a", b"b", b"c", b"x", None]


# ---------------------------------------------------------------- groups


def test_a_member_of_a_group_commits_what_it_has_printed(consumers, run):
    assert run("-t", "orders", "-g", "g", "-c", "4", "-f", "%s ") == (0, "a b c x ", "")
    (consumer,) = consumers
    assert (consumer.config["group_id"], consumer.config["auto_offset_reset"]) == ("g", "earliest")
    assert consumer.calls == [("subscribe", ["orders"]), ("commit", {P0: 3, P1: 1}), "close"]


def test_a_member_reads_to_the_ends(consumers, run):
    assert run("-t", "orders", "-g", "g", "-e", "--offset", "end") == (0, "a\nb\nc\nx\n\n", "")
    assert consumers[0].config["auto_offset_reset"] == "latest"


def test_only_the_command_line_has_it_join_a_group(consumers, run, monkeypatch, tmp_path):
    """A pod of a job has its group in the environment: a look at a topic may not take the job's partitions."""
    (tmp_path / "job.toml").write_text('group_id = "job"\ngroup_instance_id = "i"\nclient_id = "c"\n')
    monkeypatch.setenv("KAFKA_ACTORS_GROUP_ID", "job")
    run("-t", "orders", "-e", "--command-config", str(tmp_path / "job.toml"))
    run("-t", "orders", "-e", "-X", "group_id=mine")
    assert [each.config["group_id"] for each in consumers] == [None, "mine"]
    assert (consumers[0].config["group_instance_id"], consumers[0].config["client_id"]) == (None, "c")


def test_without_auto_commit_nothing_is_committed(consumers, run):
    run("-t", "orders", "-g", "g", "-e", "-X", "enable_auto_commit=false")
    assert consumers[0].calls == [("subscribe", ["orders"]), "close"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_rows_of_a_parquet_file_are_committed_when_it_is_complete(consumers, run, tmp_path, interrupted):
    file = tmp_path / "orders.parquet"
    StandIn.at_the_end.append(KeyboardInterrupt())
    code, _, _ = run(
        "-t", "orders", "-g", "g", "-o", "parquet", *([] if interrupted else ["-c", "4"]), str(file)
    )
    (consumer,) = consumers
    assert (code, consumer.config["enable_auto_commit"]) == (0, False)
    assert pq.read_table(file).num_rows == (5 if interrupted else 4)
    assert consumer.calls[1:] == [("commit", {P0: 3, P1: 2 if interrupted else 1}), "close"]


# ---------------------------------------------------------------- ends


def test_ctrl_c_is_the_end_of_reading_without_end(consumers, run):
    StandIn.at_the_end.append(KeyboardInterrupt())
    assert run("-t", "orders", "-g", "g", "-f", "%s ") == (0, "a b c x  ", "")
    assert consumers[0].calls == [("subscribe", ["orders"]), "close"], "what is in hand may not be written"


def test_ctrl_c_before_the_end_that_was_asked_for_is_an_error(consumers, run):
    StandIn.at_the_end.append(KeyboardInterrupt())
    assert run("-t", "orders", "-c", "99", "-f", "%s ") == (
        1,
        "a b c x  ",
        "kafka-actors: error: interrupted\n",
    )
    assert consumers[0].calls == ["close"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "--topic: name a topic to read"),
        (["-t", "none"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3) for none"),
        (["-t", "orders:0,5"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3) for orders-5"),
        (
            ["-t", "orders", "--offset", "stored"],
            2,
            "--offset 'stored': give beginning, end, an offset, or -N",
        ),
        (["-t", "orders", "--offset", "1", "--from-time", "2"], 2, "give either --offset or --from-time"),
        (
            ["-t", "orders", "--from-time", "noon"],
            2,
            "--from-time 'noon': give milliseconds since 1970, or YYYY",
        ),
        (["-t", "orders", "--until", "9999999999999"], 2, "--until 9999999999999: lies in the future"),
        (["-t", "orders", "-e", "--until", "2"], 2, "give either --to-end or --until"),
        (["-t", "orders", "-f", "%x"], 2, "--format '%x': %x is none of"),
        (["-t", "orders", "-f", "%s", "-K", ":"], 2, "give either --format or --key-delimiter"),
        (["-t", "orders", "-o", "json", "-f", "%s"], 2, "--format: goes with --output text, not with json"),
        (["-t", "orders", "-o", "arrow", "-Z"], 2, "--null: goes with --output text, not with arrow"),
        (["-t", "orders", "-o", "csv"], 2, "'csv' is not one of 'text', 'json', 'arrow', 'parquet'"),
        (["-t", "orders", "-c", "0"], 2, "'0' is no integer from 1 on"),
        (["-t", "orders:0", "-g", "g"], 2, "--group g: gives out the partitions: name orders without any"),
        (
            ["-t", "orders", "-g", "g", "--offset", "5"],
            2,
            "--group g: begins at its commits: --offset is beginning or end",
        ),
        (["-t", "orders", "-X", "isolation_level=none"], 2, "isolation_level"),
        (["-t", "orders", "/none/file"], 2, "FILE /none/file: No such file"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(consumers, run, arguments, code, says):
    done, out, err = run(*arguments)
    assert (done, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1
