"""`kafka-actors produce | consume`: what one writes the other reads, in each form; offsets, times, groups, pipes."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from waiting import output_of, slow_s, until

import kafka_actors as ka
from kafka_actors.cli.main import run_command_line
from kafka_actors.testing import FakeKafka, KafkaCluster
from kafka_actors.testing.produce import Produce

COMMAND = Path(sys.executable).with_name("kafka-actors")
FIRST_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Shell:
    """Runs our command on a cluster, with bytes on stdin and stdout."""

    def __init__(
        self,
        kafka: KafkaCluster | FakeKafka,
        capsysbinary: pytest.CaptureFixture[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.kafka = kafka
        self._captured = capsysbinary
        self._monkeypatch = monkeypatch

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        self._captured.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        code = run_command_line([*arguments, "-b", self.kafka.bootstrap_servers])
        out, err = self._captured.readouterr()
        return code, out, err.decode()

    def out(self, *arguments: str, stdin: bytes = b"") -> bytes:
        code, out, err = self.run(*arguments, stdin=stdin)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def shell(
    no_notices: None,
    cluster: KafkaCluster | FakeKafka,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    return Shell(cluster, capsysbinary, monkeypatch)


@pytest.fixture
def hourly(kafka_topic: Callable[..., str], produce: Produce) -> str:
    """Two partitions with records 0 to 5 and 6 to 9, an hour after each other."""
    name = kafka_topic(partitions=2)
    times = [FIRST_MS + HOUR_MS * n for n in range(10)]
    produce(name, [b"%d" % n for n in range(10)], partition=[0] * 6 + [1] * 4, timestamps=times)
    return name


def content(shell: Shell, topic: str) -> list[tuple[object, ...]]:
    """Everything in a topic as confluent-kafka reads it, but for offsets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": shell.kafka.bootstrap_servers,
            "group.id": "of-no-matter",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=slow_s(30)).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in partitions])
    found, ends = [], set()
    while len(ends) < len(partitions):
        message = consumer.poll(slow_s(30))
        assert message is not None
        if message.error() is not None:
            ends.add(message.partition())
            continue
        headers = message.headers()
        found.append((message.partition(), message.timestamp()[1], message.key(), message.value(), headers))
    consumer.close()
    return sorted(found, key=repr)


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize("form", ["json", "arrow", "parquet"])
def test_what_consume_writes_produce_sends_as_it_was(
    shell: Shell, kafka_topic: Callable[..., str], produce: Produce, tmp_path: Path, form: str
) -> None:
    source, copy = kafka_topic(partitions=2), kafka_topic(partitions=2)
    produce(
        source,
        [b"text", "ü\n\t".encode(), b"\xff\xfe\0", b"", None, b"x" * 100_000],
        keys=[b"a", b"\xff", None, b"", b"e", b"f"],
        partition=[0, 1, 0, 1, 0, 1],
        headers=[None, [("h", b"1"), ("h", b"\xff"), ("null", None)], None, None, [("ä", b"")], None],
        timestamps=[FIRST_MS + n for n in range(6)],
        compression="lz4",
    )
    file = str(tmp_path / "records")
    if form == "parquet":
        assert shell.out("consume", "-t", source, "-e", "-o", form, file) == b""
        said = shell.out("produce", "-t", copy, "-i", form, "-z", "zstd", file)
    else:
        written = shell.out("consume", "-t", source, "-e", "-o", form)
        said = shell.out("produce", "-t", copy, "-i", form, "-z", "zstd", stdin=written)
    assert said == b"Produced 6 records.\n"
    assert content(shell, copy) == content(shell, source)
    assert len(content(shell, copy)) == 6


def test_lines_are_records_with_keys_and_headers(shell: Shell, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(partitions=4)
    lines = b"".join(b"k%d\tv%d\n" % (n % 3, n) for n in range(3000))
    said = shell.out("produce", "-t", topic, "-K", r"\t", "-H", "from=shell", stdin=lines)
    assert said == b"Produced 3000 records.\n"
    out = shell.out("consume", "-t", topic, "-e", "-f", r"%k %s %h %K %S %t\n")
    read = [line.split() for line in out.decode().splitlines()]
    assert sorted(int(value[1:]) for _, value, *_ in read) == list(range(3000))
    for key in ("k0", "k1", "k2"):
        values = [int(value[1:]) for found, value, *_ in read if found == key]
        assert values == sorted(values), "in order, because in one partition"
    assert {tuple(rest) for *_, rest in ((k, v, rest) for k, v, *rest in read)} == {
        ("from=shell", "2", str(length), topic) for length in range(2, 6)
    }


def test_records_that_are_not_sent_are_named(shell: Shell, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(config={"max.message.bytes": "1000"})
    lines = b"one\n" + b"x" * 2_000_000 + b"\nthree\n" + b"four\n"
    code, out, err = shell.run("produce", "-t", topic, stdin=lines)
    assert (code, out) == (1, b"Produced 3 records.\n")
    assert err.splitlines()[0].startswith("kafka-actors: error: line 2: MESSAGE_TOO_LARGE (10)")
    code, out, err = shell.run("produce", "-t", topic, stdin=b"five\n" + b"y" * 5000 + b"\nseven\n")
    assert (code, out) == (1, b"Produced 2 records.\n"), "the broker's limit is lower than the producer's"
    assert err.splitlines()[0].startswith("kafka-actors: error: line 2: MESSAGE_TOO_LARGE (10)")
    assert shell.out("consume", "-t", topic, "-e") == b"one\nthree\nfour\nfive\nseven\n"


# ---------------------------------------------------------------- where it begins and stops


CASES: list[tuple[list[str], range | list[int]]] = [
    (["-e"], range(10)),
    (["-e", "--offset", "3"], [3, 4, 5, 9]),
    (["-e", "--offset", "-1"], [5, 9]),
    (["-e", "--offset", "end"], []),
    (["-e", "--from-time", str(FIRST_MS + 4 * HOUR_MS)], range(4, 10)),
    (["-e", "--from-time", "2023-11-15T06:13:20.000"], range(8, 10)),
    (["-e", "--from-time", str(FIRST_MS + 99 * HOUR_MS)], []),
    (["--until", str(FIRST_MS + 2 * HOUR_MS)], [0, 1]),
    (["--until", str(FIRST_MS + 99 * HOUR_MS)], range(10)),
    (["--offset", "1", "--until", "2023-11-15T06:13:20"], [1, 2, 3, 4, 5, 7]),
    (["-c", "10"], range(10)),
]


def test_records_are_read_from_here_to_there(shell: Shell, hourly: str) -> None:
    for arguments, read in CASES:
        out = shell.out("consume", "-t", hourly, "-f", "%s ", *arguments)
        assert sorted(map(int, out.split())) == list(read), arguments
    assert shell.out("consume", "-t", f"{hourly}:1", "-c", "3") == b"6\n7\n8\n"


def test_a_log_ends_with_the_marker_of_a_transaction(shell: Shell, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic()
    servers = {"bootstrap.servers": shell.kafka.bootstrap_servers}
    producer = confluent_kafka.Producer({**servers, "transactional.id": topic})
    producer.init_transactions()
    for value, commits in (("aborted", False), ("committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    # A broker writes markers when it has acknowledged the end of a transaction.
    tp = ka.TopicPartition(topic, 0)
    with ka.Consumer(
        bootstrap_servers=shell.kafka.bootstrap_servers, isolation_level="read_committed"
    ) as reader:
        until(
            lambda: reader.end_offsets([tp]) == {tp: 4},
            30,
            "both markers",
            shown=lambda: reader.end_offsets([tp]),
        )
    assert shell.out("consume", "-t", topic, "-e", "-X", "isolation_level=read_committed") == b"committed\n"
    assert shell.out("consume", "-t", topic, "-e") == b"aborted\ncommitted\n"


# ---------------------------------------------------------------- groups and processes


@pytest.mark.kafka
def test_a_group_goes_on_where_it_stopped(shell: Shell, hourly: str, group_id: str) -> None:
    first = shell.out("consume", "-t", hourly, "-g", group_id, "-c", "4")
    behind = json.loads(shell.out("lag", "-g", group_id, "-o", "json"))
    assert sum(row["lag"] for row in behind) == 6
    rest = shell.out("consume", "-t", hourly, "-g", group_id, "-e")
    assert sorted(map(int, (first + rest).split())) == list(range(10))
    behind = json.loads(shell.out("lag", "-g", group_id, "-o", "json"))
    assert [row["lag"] for row in behind] == [0, 0]


def test_a_reader_that_has_enough_ends_it_without_a_word(shell: Shell, hourly: str) -> None:
    """Though no more records come: `head` is gone after the first one."""
    command = f"{COMMAND} consume -t {hourly}:0 -b {shell.kafka.bootstrap_servers} | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=slow_s(60), check=False
    )
    assert done.stdout == "0\n"
    assert not re.search("error|Traceback", done.stderr)


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_signal_ends_reading_without_end_in_order(shell: Shell, hourly: str, name: str) -> None:
    command = [str(COMMAND), "consume", "-t", f"{hourly}:0", "-b", shell.kafka.bootstrap_servers]
    process = subprocess.Popen(
        [*command, "-f", r"%s\n"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Shells have what they run in the background ignore it, with all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(6)] == [b"%d\n" % n for n in range(6)]
    subprocess.run(["kill", f"-{name}", str(process.pid)], check=True)
    out, err = output_of(process, 60)
    assert (process.returncode, out) == (0, b"")
    assert not re.search(b"error|Traceback", err)
