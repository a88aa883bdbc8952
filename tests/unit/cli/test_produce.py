"""`kafka-actors produce`: what it reads, what it sends, and what it says of records that were not sent; the producer is a stand-in."""

from __future__ import annotations

import io
import itertools
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes.batches import records
from waiting import slow_s

from kafka_actors.cli import produce as module
from kafka_actors.cli.main import run_command_line
from kafka_actors.cli.produce import BatchSender, InputBatch, LineFormat, complete_lines
from kafka_actors.errors import (
    KafkaTimeoutError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
    UndeliveredError,
    UsageError,
)


class Future:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def done(self) -> bool:
        return False

    def result(self) -> None:
        if self.error is not None:
            raise self.error


class StandIn:
    """A producer that keeps the rows it gets. A batch with the value "large" is refused as a whole; a row with "lost" fails later;
    the topic "mine" may not be written to."""

    made: list[StandIn]

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.rows: list[dict[str, Any]] = []
        self.topics: set[str | None] = set()
        self.closed = False
        self.made.append(self)

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True

    def send_batch(self, batch: pa.RecordBatch, topic: str | None) -> Future:
        if topic == "mine":
            raise TopicAuthorizationFailedError(topic=topic)
        rows = batch.to_pylist()
        values = [row["value"] for row in rows]
        if b"large" in values:
            raise MessageTooLargeError(f"row {values.index(b'large')} takes up to 9 bytes", topic=topic)
        if b"strange" in values:
            raise UsageError("send_batch: timestamp of row 0 is 1")
        self.topics.add(topic)
        self.rows += [row for row in rows if row["value"] != b"lost"]
        lost = [index for index, value in enumerate(values) if value == b"lost"]
        error = NotEnoughReplicasError(topic=topic, partition=0)
        return Future(UndeliveredError(len(lost), {("orders", 0): error}, lost) if lost else None)

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        return [(row.get("key"), row["value"]) for row in self.rows]


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    monkeypatch.setattr("kafka_actors.producer.Producer", StandIn)
    monkeypatch.setattr(StandIn, "made", [], raising=False)
    return StandIn.made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(stdin: bytes, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        code = run_command_line(["produce", *arguments])
        return code, *capsys.readouterr()

    return run


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ([], [(None, b"k:v"), (None, b"w"), (None, b":x"), (None, b"y:"), (None, b"last")]),
        (["-K", ":"], [(b"k", b"v"), (None, b"w"), (b"", b"x"), (b"y", b""), (None, b"last")]),
        (["-K", ":", "-k", "z"], [(b"k", b"v"), (b"z", b"w"), (b"", b"x"), (b"y", b""), (b"z", b"last")]),
        (["-k", "z"], [(b"z", b"k:v"), (b"z", b"w"), (b"z", b":x"), (b"z", b"y:"), (b"z", b"last")]),
        (
            ["-K", ":", "-Z"],
            [(b"k", b"v"), (None, b"w"), (None, b"x"), (b"y", None), (None, None), (None, b"last")],
        ),
        (["-Z"], [(None, b"k:v"), (None, b"w"), (None, b":x"), (None, b"y:"), (None, None), (None, b"last")]),
    ],
)
def test_lines_become_records_as_with_kcat(producers, run, arguments, sent):
    code, out, err = run(b"k:v\nw\n:x\ny:\n\nlast", "-t", "orders", *arguments)
    assert (code, out, err) == (0, f"Produced {len(sent)} records.\n", "")
    (producer,) = producers
    assert (producer.pairs, producer.topics, producer.closed) == (sent, {"orders"}, True)


def test_a_delimiter_has_escapes_and_may_be_longer_than_a_byte(producers, run):
    run(b"a\tb\n", "-t", "orders", "-K", r"\t")
    run(b"a::b:\n", "-t", "orders", "-K", "::")
    assert [each.pairs for each in producers] == [[(b"a", b"b")], [(b"a", b"b:")]]


def test_headers_are_those_of_each_record(producers, run):
    run(b"1\n2\n", "-t", "orders", "-H", "a=1=1", "-H", "b=", "-H", "c")
    wanted = [{"key": "a", "value": b"1=1"}, {"key": "b", "value": b""}, {"key": "c", "value": None}]
    assert [row["headers"] for row in producers[0].rows] == [wanted, wanted]


def test_bytes_are_sent_as_they_are(producers, run):
    run(b"\xff\r\n\0\n", "-t", "orders")
    assert producers[0].pairs == [(None, b"\xff\r"), (None, b"\0")]


def test_files_are_sent_one_after_the_other(producers, run, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2")
    run(b"stdin", "-t", "orders", str(tmp_path / "a"), "-", str(tmp_path / "b"))
    assert [value for _, value in producers[0].pairs] == [b"a1", b"a2", b"stdin", b"b1", b"b2"]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_are_cut_wherever_reads_end(monkeypatch, size):
    monkeypatch.setattr(module, "CHUNK_BYTES", size)
    for text in (b"one\ntwo\n\nthree", b"one\ntwo\n\nthree\n"):
        lines = [line for chunk in complete_lines(io.BytesIO(text)) for line in chunk]
        assert lines == [b"one", b"two", b"", b"three"]
    assert list(complete_lines(io.BytesIO(b""))) == []


def test_lines_are_handed_over_as_soon_as_a_pipe_has_them():
    class Pipe(io.BytesIO):
        parts = [b"a\nb", b"\nc\n", b""]

        def read1(self, size: int | None = -1) -> bytes:
            return self.parts.pop(0)

    assert list(complete_lines(Pipe())) == [[b"a"], [b"b", b"c"]]


def test_options_of_the_producer_are_given_as_elsewhere(producers, run):
    run(b"a\n", "-t", "orders", "-z", "zstd", "-X", "linger.ms=50", "-b", "broker:1")
    config = producers[0].config
    assert (config["compression_type"], config["linger_ms"]) == ("zstd", 50)
    assert config["bootstrap_servers"] == ["broker:1"]


# ---------------------------------------------------------------- other forms


def test_json_lines_name_topic_partition_time_and_headers(producers, run):
    line = b'{"topic":"a","partition":1,"offset":9,"timestamp":5,"key":"k","value":"v","headers":[{"key":"h","value":"x"}]}\n'
    assert run(line + b"\n", "-i", "json")[0] == 0
    assert (producers[0].topics, producers[0].rows) == (
        {None},
        [
            {
                "topic": "a",
                "partition": 1,
                "timestamp": 5,
                "key": b"k",
                "value": b"v",
                "headers": [{"key": "h", "value": b"x"}],
            }
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "partitions"), [([], [3, 3]), (["-p", "0"], [0, 0]), (["--repartition"], [None, None])]
)
def test_partitions_of_records_are_kept_unless_told(producers, run, tmp_path, arguments, partitions):
    pq.write_table(pa.Table.from_batches([records([b"a", None], partition=3)]), tmp_path / "orders.parquet")
    code, out, _ = run(b"", "-i", "parquet", "-t", "copy", *arguments, str(tmp_path / "orders.parquet"))
    assert (code, out) == (0, "Produced 2 records.\n")
    assert [row.get("partition") for row in producers[0].rows] == partitions
    assert [row["value"] for row in producers[0].rows] == [b"a", None]


def test_arrow_comes_from_stdin(producers, run):
    stream = io.BytesIO()
    batch = records([b"a"], keys=[b"k"])
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    assert run(stream.getvalue(), "-i", "arrow", "-p", "2")[0] == 0
    assert [(row["topic"], row["partition"], row["key"]) for row in producers[0].rows] == [
        ("orders", 2, b"k")
    ]


# ---------------------------------------------------------------- errors


def test_records_that_are_refused_are_named_by_their_lines_and_the_others_are_sent(producers, run):
    code, out, err = run(b"1\nlarge\n\n4\n5\nstrange\nlarge\n8\n", "-t", "orders")
    assert (code, out) == (1, "Produced 4 records.\n")
    assert [value for _, value in producers[0].pairs] == [b"1", b"4", b"5", b"8"]
    said = [line.removeprefix("kafka-actors: error: ") for line in err.splitlines()]
    assert [line.split(": ")[0] for line in said] == ["line 2", "line 6", "line 7", "3 records were not sent"]
    assert said[0].endswith("it takes up to 9 bytes")
    assert said[1] == "line 6: timestamp of it is 1"


def test_records_that_brokers_refuse_are_named_by_runs_of_lines(producers, run):
    code, out, err = run(b"1\nlost\nlost\n4\n\nlost\n", "-t", "orders")
    assert (code, out) == (1, "Produced 2 records.\n")
    lines = err.splitlines()
    assert lines[0].startswith("kafka-actors: error: lines 2-3: NOT_ENOUGH_REPLICAS")
    assert lines[1].startswith("kafka-actors: error: line 6: NOT_ENOUGH_REPLICAS")
    assert lines[2] == "kafka-actors: error: 3 records were not sent"


def test_a_bad_line_of_json_is_named_with_its_file(producers, run, tmp_path):
    (tmp_path / "in").write_text('{"value": "a"}\n\n{"vaule": "b"}\n{"value": "c"}\n')
    code, out, err = run(b"", "-t", "orders", "-i", "json", str(tmp_path / "in"))
    assert (code, out) == (1, "Produced 2 records.\n")
    said = f"kafka-actors: error: {tmp_path}/in, line 3: Object contains unknown field `vaule`\n"
    assert err == said + "kafka-actors: error: 1 record was not sent\n"


def test_rows_of_parquet_are_counted_over_the_whole_file(producers, run, tmp_path, monkeypatch):
    monkeypatch.setattr("kafka_actors.cli.record_files.BATCH_ROWS", 2)
    pq.write_table(pa.table({"value": [b"1", b"2", b"3", b"lost"]}), tmp_path / "in")
    code, _, err = run(b"", "-t", "orders", "-i", "parquet", str(tmp_path / "in"))
    assert (code, "in, row 4: " in err) == (1, True)


def test_errors_of_the_topic_end_it_at_once(producers, run):
    code, out, err = run(b"1\n2\n", "-t", "mine")
    assert (code, out) == (1, "")
    assert err.startswith("kafka-actors: error: TOPIC_AUTHORIZATION_FAILED (29) for mine")
    assert err.count("\n") == 1


def test_ctrl_c_sends_what_was_read(producers, run, monkeypatch):
    settled = []

    class Interrupted(BatchSender):
        def send(self, part: InputBatch) -> None:
            super().send(part)
            raise KeyboardInterrupt

        def settle(self) -> None:
            super().settle()
            settled.append(self.sent)

    monkeypatch.setattr(module, "BatchSender", Interrupted)
    said = "Produced 2 records before that.\nkafka-actors: error: interrupted\n"
    assert run(b"1\n2\n", "-t", "orders") == (1, "", said)
    assert (settled, producers[0].closed) == ([2], True)


def test_an_error_of_the_cluster_is_not_one_of_a_record():
    class Silent:
        def send_batch(self, batch: pa.RecordBatch, topic: str | None) -> None:
            raise KafkaTimeoutError("no room in buffer_memory")

    said: list[str] = []
    silent: Any = Silent()
    sender = BatchSender(silent, "orders", said.append)
    numbers, batch = LineFormat().batch([(1, b"a"), (2, b"b")])
    with pytest.raises(KafkaTimeoutError):
        sender.send(InputBatch(batch, "", "line", numbers))
    assert said == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--topic: name the topic to send to"),
        (["-t", "t", "-p", "0", "--repartition"], "give either --partition or --repartition"),
        (["-i", "json", "-K", ":"], "--key-delimiter: goes with --input text, not with json"),
        (["-i", "json", "-H", "a=b"], "--header: goes with --input text, not with json"),
        (["-i", "arrow", "-Z"], "--null: goes with --input text, not with arrow"),
        (["-t", "t", "-K", ""], "--key-delimiter '': is empty"),
        (["-t", "t", "-H", "=b"], "--header '=b': give NAME=VALUE, or NAME for a null"),
        (["-t", "t", "-z", "lzma"], "compression_type"),
        (["-t", "t", "-i", "parquet"], "--input parquet: can't be read from stdin: give a FILE"),
        (["-t", "t", "-i", "arrow"], "--input arrow: stdin: "),
        (["-t", "t", "/none"], "FILE /none: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(producers, run, arguments, says):
    code, out, err = run(b"nonsense\n", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_columns_that_cannot_be_sent_are_named_with_their_file(producers, run, tmp_path: Path):
    pq.write_table(pa.table({"value": [b"a"], "customer": [b"b"]}), tmp_path / "in")
    code, _, err = run(b"", "-t", "t", "-i", "parquet", str(tmp_path / "in"))
    assert code == 2
    assert f"--input parquet: {tmp_path}/in: there is a column 'customer': the columns are key, value" in err
    assert producers == []


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        *itertools.product(["text", "json", "arrow", "parquet"], ["missing", "directory"]),
        ("arrow", "nonsense"),
        ("parquet", "nonsense"),
    ],
)
def test_a_file_that_can_not_be_read_is_known_before_the_first_is_sent(producers, run, tmp_path, form, wrong):
    write_one(form, tmp_path / "good")
    (tmp_path / "directory").mkdir()
    (tmp_path / "nonsense").write_bytes(b"nonsense")
    code, out, err = run(b"", "-t", "t", "-i", form, str(tmp_path / "good"), str(tmp_path / wrong))
    assert (code, out, producers) == (2, "", [])
    assert f"{tmp_path}/{wrong}: " in err


def test_a_file_that_breaks_off_ends_it_with_the_number_of_records_that_are_sent(producers, run, tmp_path):
    """It is no wrong usage then: who gives the same command again has records twice."""
    write_one("arrow", tmp_path / "good")
    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-40])
    code, out, err = run(b"", "-t", "t", "-i", "arrow", str(tmp_path / "good"), str(tmp_path / "cut"))
    assert (code, out, len(producers[0].rows)) == (1, "", 1)
    first, second = err.splitlines()
    assert first == "Produced 1 record before that."
    assert second.startswith(f"kafka-actors: error: --input arrow: {tmp_path}/cut: ")


def test_a_pipe_is_opened_once(producers, run, tmp_path):
    """Opened for a look and closed, it would have ended what its writer writes."""
    (tmp_path / "good").write_bytes(b"1\n")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"2\n3\n",), daemon=True)
    writer.start()
    assert run(b"", "-t", "t", str(tmp_path / "good"), str(tmp_path / "pipe"))[:2] == (
        0,
        "Produced 3 records.\n",
    )
    writer.join(timeout=slow_s(10))
    assert not writer.is_alive()


def write_one(form: str, path: Path) -> None:
    """Writes a file of one record."""
    batch = records([b"a"])
    if form == "arrow":
        with pa.ipc.new_stream(path, batch.schema) as writer:
            writer.write_batch(batch)
    elif form == "parquet":
        pq.write_table(pa.Table.from_batches([batch]), path)
    else:
        path.write_bytes(b'{"value":"a"}\n')
