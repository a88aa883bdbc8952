"""`kafka-actors spark-checkpoint`: lines and documents of the offsets in a checkpoint, and paths that it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_actors.cli.main import run_command_line
from kafka_actors.spark.source.machines.stream_offsets import KeptSchema, StreamOffsets
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)
ID = b"\x01" * 16


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A finished batch that ended at 5, and one planned up to 8 with a schema, of a rate source and a Kafka source."""
    path = tmp_path / "query"
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    for batch, end in enumerate((5, 8)):
        schema = KeptSchema(7, "t-value", 3) if batch else None
        offsets = json.dumps(StreamOffsets({T0: end}, {"t": ID}, schema=schema).to_json())
        (path / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", "17", offsets]))
    (path / "commits" / "0").write_text("v1\n{}")
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command_line(["spark-checkpoint", *arguments]) == 0
    return capsys.readouterr().out


def documents(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(shown(capsys, "show", *arguments, "-o", "json"))


def test_both_batches_are_shown_with_the_ids_of_their_topics(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert documents(capsys, str(checkpoint))[0] == {
        "batch": 0,
        "state": "finished",
        "source": "1",
        "form": "kafka-actors",
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "topic_id": ID.hex(),
        "schema": None,
    }
    lines = [line.split() for line in shown(capsys, "show", str(checkpoint)).splitlines()]
    assert lines[0] == [
        "BATCH",
        "STATE",
        "SOURCE",
        "FORM",
        "TOPIC",
        "PARTITION",
        "OFFSET",
        "TOPIC-ID",
        "SCHEMA",
    ]
    assert lines[2] == ["1", "planned", "1", "kafka-actors", "t", "0", "8", ID.hex(), "7"]


def test_a_conversion_says_what_it_changed_and_that_a_second_one_changed_nothing(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(checkpoint)
    convert = ("convert", path, "--to")
    assert shown(capsys, *convert, "spark") == f"{path}: changed the offsets of 2 batches to spark\n"
    assert shown(capsys, *convert, "spark") == f"{path}: nothing to change\n"
    rows = documents(capsys, path)
    assert [(r["form"], r["offset"], r["topic_id"]) for r in rows] == [
        ("spark", 5, ID.hex()),
        ("spark", 8, ID.hex()),
    ], "topic ids that Spark's form has no place for come from the state files"
    (checkpoint / "offsets" / "1").unlink()
    assert shown(capsys, *convert, "kafka-actors").endswith("the offsets of 1 batch to kafka-actors\n")


def test_without_the_state_files_the_id_of_a_topic_is_unknown(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(capsys, "convert", str(checkpoint), "--to", "spark", "--state-location", str(tmp_path / "state"))
    assert [row["topic_id"] for row in documents(capsys, str(checkpoint))] == [None, None]
    there = documents(capsys, str(checkpoint), "--state-location", str(tmp_path / "state"))
    assert [row["topic_id"] for row in there] == [ID.hex(), ID.hex()]


def test_a_relative_path_is_one_of_the_working_directory(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    checkpoint.rename("orders:today")
    assert [row["offset"] for row in documents(capsys, "orders:today")] == [5, 8], "that is no URI"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "empty"], "is not the checkpoint of a query that has planned a batch"),
        (["show", "s3a://bucket/c"], "PATH: is 's3a://bucket/c', by Hadoop's name"),
        (
            ["convert", "query", "--to", "spark", "--state-location", "s3a://b/s"],
            "--state-location: is 's3a:",
        ),
        (["convert", "query", "--to", "flink"], "Invalid value for '--to': 'flink' is not one of"),
        (["convert", "query"], "Missing option '--to'"),
    ],
)
def test_what_is_no_checkpoint_and_no_form_is_refused_in_one_line(
    checkpoint: Path,
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    Path("empty").mkdir()
    assert run_command_line(["spark-checkpoint", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
