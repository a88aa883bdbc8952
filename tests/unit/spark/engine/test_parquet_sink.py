"""Files of a micro-batch: hidden until it is complete, and those of an earlier try of it replaced."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from kafka_actors.errors import SinkError
from kafka_actors.pipeline.stages import WriteParquet

pytest.importorskip("pyspark")
from kafka_actors.spark.engine import parquet_sink as parquet
from kafka_actors.spark.engine.parquet_sink import TaskFile, batch_unit, discard, reveal, run_unit


class Batch:
    """One try of a micro-batch, some tasks of which write."""

    def __init__(self, directory, number=3):
        self.stage = WriteParquet(name="write_parquet", path=str(directory))
        self.directory = directory
        self.unit = batch_unit("query", number)
        self.name = self.unit.name

    def task(self, number, *values):
        file = TaskFile(self.stage, self.unit, number)
        for part in values:
            file.write(pa.record_batch({"v": list(part)}))
        return file.finish()

    def reveal(self, written):
        reveal(self.stage, self.unit, written)

    def hidden(self):
        return sorted(n for n in os.listdir(self.directory) if n.startswith("."))

    def visible(self):
        names = [n for n in os.listdir(self.directory) if not n.startswith(".")]
        return {n: pq.read_table(self.directory / n)["v"].to_pylist() for n in names}


@pytest.fixture
def batch(tmp_path):
    return Batch(tmp_path / "out")


def test_files_are_hidden_until_the_micro_batch_is_complete(batch):
    written = [batch.task(0, [1, 2], [3]), batch.task(1), batch.task(2, [4])]
    assert batch.visible() == {}
    batch.reveal(written)
    assert batch.visible() == {f"{batch.name}00000.parquet": [1, 2, 3], f"{batch.name}00002.parquet": [4]}
    assert batch.hidden() == [f".{batch.name}"], "until the next one is complete"
    following = Batch(batch.directory, 4)
    following.reveal([following.task(0, [5])])
    assert batch.hidden() == [f".{following.name}"]
    empty = Batch(batch.directory, 5)
    empty.reveal([empty.task(0)])
    assert batch.hidden() == []
    assert sorted(v for values in batch.visible().values() for v in values) == [1, 2, 3, 4, 5]


def test_the_run_of_a_batch_leaves_nothing_hidden(batch):
    batch.unit = run_unit("id")
    written = [batch.task(0, [1, 2]), batch.task(1, [3])]
    assert batch.visible() == {}
    batch.reveal(written)
    assert batch.visible() == {"spark-id-00000.parquet": [1, 2], "spark-id-00001.parquet": [3]}
    assert batch.hidden() == []


def test_other_files_are_not_looked_at(batch, monkeypatch):
    """There may be a million of them: an object store lists a thousand at a time."""
    listed = []

    class Watched(fs.LocalFileSystem):
        def get_file_info(self, what):
            listed.append(what.base_dir if isinstance(what, fs.FileSelector) else what)
            return super().get_file_info(what)

    monkeypatch.setattr(parquet, "file_system", lambda path: (Watched(), path))
    for _ in range(2):
        batch.reveal([batch.task(0, [1])])
    assert str(batch.directory) not in listed
    assert f"{batch.directory}/.{batch.name}" in listed


@pytest.mark.parametrize("died", ["before", "between", "after"])
def test_a_micro_batch_that_is_done_again_is_there_once(batch, died, monkeypatch):
    """With other tasks than before: three, where there were two."""
    first = [batch.task(0, [1, 2, 3]), batch.task(1, [4]), batch.task(7, [5])]
    if died == "between":
        first = first[:2]
    if died != "before":
        batch.reveal(first)
    batch.reveal([batch.task(0, [1, 2]), batch.task(1, [3]), batch.task(2, [4, 5])])
    assert sorted(v for values in batch.visible().values() for v in values) == [1, 2, 3, 4, 5]
    assert batch.visible().keys() == {f"{batch.name}0000{task}.parquet" for task in range(3)}
    left = os.listdir(batch.directory / f".{batch.name}")
    assert [os.path.splitext(name)[1] for name in left] == [".names"], "nothing of the first try is left"


def test_files_of_other_batches_queries_and_engines_stay(batch):
    batch.directory.mkdir()
    others = [
        f"{batch_unit('query', 30).name}00000.parquet",
        f"{batch_unit('other', 3).name}0.parquet",
        "t-0-1-2.parquet",
    ]
    for name in others:
        (batch.directory / name).touch()
    batch.reveal([batch.task(0, [1])])
    assert set(os.listdir(batch.directory)) == {*others, f"{batch.name}00000.parquet", f".{batch.name}"}


def test_a_task_that_fails_leaves_nothing_and_an_aborted_batch_neither(batch):
    file = TaskFile(batch.stage, batch.unit, 0)
    file.discard()  # nothing was written yet
    file.write(pa.record_batch({"v": [1]}))
    assert len(os.listdir(batch.directory / f".{batch.name}")) == 1
    file.discard()
    for hidden in (batch.task(1, [1]), batch.task(2)):
        discard(batch.stage, hidden)
    assert os.listdir(batch.directory / f".{batch.name}") == []


def test_many_rows_are_row_groups_of_one_file(batch, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 40)
    batch.reveal([batch.task(0, *[[n, n] for n in range(10)])])
    [name] = batch.visible()
    assert batch.visible()[name] == [n for n in range(10) for _ in range(2)]
    assert pq.ParquetFile(batch.directory / name).num_row_groups == 4


def test_a_file_that_is_discarded_is_closed_first(batch):
    """An object store made it later, when its stream was collected, and nobody deleted it any more."""
    made = TaskFile(batch.stage, batch.unit, 0)
    made.write(pa.record_batch({"v": [1]}))
    made.discard()
    assert made._stream.closed
    assert os.listdir(batch.directory / f".{batch.name}") == []


def test_a_file_whose_writer_could_not_be_made_is_closed_and_deleted_too(batch, monkeypatch):
    def refuse(*_, **__):
        raise pa.ArrowNotImplementedError("no such column in Parquet")

    monkeypatch.setattr(parquet.pq, "ParquetWriter", refuse)
    made = TaskFile(batch.stage, batch.unit, 0)
    with pytest.raises(pa.ArrowNotImplementedError):
        made.write(pa.record_batch({"v": [1]}))
    made.discard()
    assert made._stream.closed
    assert os.listdir(batch.directory / f".{batch.name}") == []


def test_each_batch_of_a_row_group_is_measured_once(batch):
    """All were, with each: a thousand batches took half a minute."""

    class Rows:
        num_rows = 1
        schema = pa.schema({"id": pa.int64()})
        measured = 0

        @property
        def nbytes(self):
            self.measured += 1
            return 8

    rows = Rows()
    made = TaskFile(batch.stage, batch.unit, 0)
    for _ in range(100):
        made.write(rows)
    made.discard()
    assert rows.measured == 100


def test_what_the_file_system_refuses_is_the_sinks_error(tmp_path):
    (tmp_path / "file").touch()
    made = Batch(tmp_path / "file" / "below")
    with pytest.raises(SinkError, match=r"write_parquet: .*Error: "):
        made.task(0, [1])
    with pytest.raises(SinkError, match=r"write_parquet: .*Error: "):
        made.reveal([{"x.parquet": "/not/there"}])
