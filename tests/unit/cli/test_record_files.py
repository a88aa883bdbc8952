"""Records in files and pipes: Arrow and Parquet, out and in."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes.batches import records

from kafka_actors.base.batches import SCHEMA
from kafka_actors.cli import record_files
from kafka_actors.cli.output import Output
from kafka_actors.cli.record_files import arrow_batches, check_reader, opened_for_reading, record_writer
from kafka_actors.errors import UsageError

BATCHES = [records([b"a", None]), records([b"b"], partition=1, first=5)]


def written(form: str, file: str, batches: list[pa.RecordBatch] = BATCHES) -> None:
    with (
        Output() as output,
        record_writer(output, form, file, lambda batch: b"%d;" % batch.num_rows) as write,
    ):
        for batch in batches:
            write(batch)


def read(form: str, file: Path) -> pa.Table:
    with opened_for_reading(form, str(file)) as stream:
        return pa.Table.from_batches(arrow_batches(form, stream), SCHEMA)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_what_was_written_is_read_as_it_was(form, tmp_path):
    written(form, str(tmp_path / "file"))
    assert read(form, tmp_path / "file").equals(pa.Table.from_batches(BATCHES))


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_file_without_records_has_the_columns(form, tmp_path):
    written(form, str(tmp_path / "file"), [])
    assert read(form, tmp_path / "file").num_rows == 0


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_file_is_complete_though_an_interrupt_ended_it(form, tmp_path):
    def interrupted() -> None:
        with Output() as output, record_writer(output, form, str(tmp_path / "file"), None) as write:
            write(BATCHES[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read(form, tmp_path / "file").num_rows == 2


def test_large_row_groups_are_written_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "ROW_GROUP_BYTES", BATCHES[0].nbytes)
    written("parquet", str(tmp_path / "file"), [*BATCHES, *BATCHES])
    assert pq.ParquetFile(tmp_path / "file").num_row_groups == 3


def test_text_goes_to_stdout_batch_by_batch(capsysbinary):
    written("text", "-")
    assert capsysbinary.readouterr().out == b"2;1;"


def test_bytes_are_not_for_a_terminal(monkeypatch, tmp_path):
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO()))
    with pytest.raises(UsageError, match="--output parquet: is not for a terminal: give a FILE"):
        written("parquet", "-")
    written("text", "-")


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"FILE .*/none/file: No such file"):
        written("text", str(tmp_path / "none" / "file"))
    with pytest.raises(UsageError, match=r"FILE .*/none: No such file"):
        opened_for_reading("text", str(tmp_path / "none"))


def test_parquet_does_not_come_from_a_pipe():
    with pytest.raises(UsageError, match="--input parquet: can't be read from stdin: give a FILE"):
        opened_for_reading("parquet", "-")


def test_arrows_file_format_is_read_too(tmp_path):
    with pa.ipc.new_file(tmp_path / "file", SCHEMA) as writer:
        for batch in BATCHES:
            writer.write_batch(batch)
    assert read("arrow", tmp_path / "file").equals(pa.Table.from_batches(BATCHES))


def test_arrow_comes_from_a_pipe(tmp_path):
    written("arrow", str(tmp_path / "file"))

    class Pipe(io.BufferedReader):
        def seekable(self) -> bool:
            return False

    pipe = Pipe(io.BytesIO((tmp_path / "file").read_bytes()))  # type: ignore[type-var]  # BytesIO will do
    assert pa.Table.from_batches(arrow_batches("arrow", pipe)).num_rows == 3


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"value": [b"a"], "customer": [b"b"]}, "there is a column 'customer'"),
        ({"value": [1]}, "column value is int64"),
        ({"key": [b"a"]}, "there is no column 'value'"),
    ],
)
def test_columns_that_cannot_be_sent_are_named_before_anything_is(tmp_path, columns: dict[str, Any], says):
    pq.write_table(pa.table(columns), tmp_path / "file")
    with (
        pytest.raises(TypeError, match=says),
        opened_for_reading("parquet", str(tmp_path / "file")) as stream,
    ):
        arrow_batches("parquet", stream)


def test_a_pipe_that_nobody_reads_any_more_is_noticed_without_writing():
    reading, writing = os.pipe()
    with open(writing, "wb") as stream:
        check_reader(stream)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            check_reader(stream)


def test_what_is_no_file_has_no_reader_to_lose():
    check_reader(io.BytesIO())


@pytest.mark.parametrize("form", ["text", "arrow", "parquet"])
def test_a_full_disk_is_named(form):
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        written(form, "/dev/full", [records([b"x" * 100_000])])
