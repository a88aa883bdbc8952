"""Parquet files: one of each partition a flush, whole or not there, named by what they were made of."""

import os
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_actors.config import ClientConfig, JobConfig, build
from kafka_actors.sinks import Origin, ParquetSink, origin_of


def rows(first, count):
    return pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})


def names(path):
    return sorted(p.name for p in path.iterdir())


@pytest.fixture
def writer(tmp_path):
    return ParquetSink(str(tmp_path / "out")).open(ClientConfig())


def test_a_sink_is_shown_without_the_keys_of_its_store() -> None:
    """Notes of errors name the sink, and an address of S3 may have keys in it."""
    assert repr(ParquetSink("s3://key:hush@bucket/out")) == "<ParquetSink s3://***@bucket/out>"


def test_nothing_is_there_before_the_flush_and_one_file_of_each_partition_after(tmp_path, writer):
    writer.write(rows(0, 10), Origin("t", 0, 0, 9))
    writer.write(rows(10, 5), Origin("t", 0, 10, 19))
    writer.write(rows(0, 3), Origin("t", 7, 100, 102))
    assert names(tmp_path / "out") == []
    writer.flush()
    first = f"t-0-{0:020d}-{19:020d}.parquet"
    assert names(tmp_path / "out") == [first, f"t-7-{100:020d}-{102:020d}.parquet"]
    assert pq.read_table(tmp_path / "out" / first)["id"].to_pylist() == list(range(15))
    writer.flush()
    assert len(names(tmp_path / "out")) == 2


def test_files_and_their_names_are_on_the_disk_when_the_flush_is_over(tmp_path, writer, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(handle):
        is_directory = stat.S_ISDIR(os.fstat(handle).st_mode)
        synced.append((is_directory, names(tmp_path / "out") if is_directory else None))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    writer.write(rows(0, 10), Origin("t", 0, 0, 9))
    writer.write(rows(0, 3), Origin("t", 7, 100, 102))
    writer.flush()
    assert synced == [(False, None), (False, None), (True, names(tmp_path / "out"))]
    assert len(names(tmp_path / "out")) == 2
    writer.flush()
    assert len(synced) == 3, "nothing was written"


def test_the_same_range_again_takes_the_files_place(tmp_path, writer):
    for _ in range(2):
        writer.write(rows(0, 10), Origin("t", 0, 0, 9))
        writer.flush()
    assert len(names(tmp_path / "out")) == 1
    assert pq.read_table(tmp_path / "out").num_rows == 10


def test_several_results_of_one_batch_are_in_one_file_and_earlier_offsets_begin_another(tmp_path, writer):
    for first in (0, 5):
        writer.write(rows(first, 5), Origin("t", 0, 0, 9))
    writer.write(rows(0, 10), Origin("t", 0, 4, 9))
    writer.flush()
    assert names(tmp_path / "out") == [
        f"t-0-{0:020d}-{9:020d}.parquet",
        f"t-0-{4:020d}-{9:020d}.parquet",
    ]


def test_rows_of_two_schemas_of_the_same_records_are_in_two_files(tmp_path, writer):
    for _ in range(2):  # the second time: read again after a partition came back
        writer.write(rows(0, 5), Origin("t", 0, 0, 9))
        writer.write(pa.record_batch({"name": ["a", "b"]}), Origin("t", 0, 0, 9))
        writer.flush()
    span = f"t-0-{0:020d}-{9:020d}"
    assert names(tmp_path / "out") == [f"{span}.1.parquet", f"{span}.parquet"]
    assert pq.read_table(tmp_path / "out" / f"{span}.parquet")["id"].to_pylist() == list(range(5))
    assert pq.read_table(tmp_path / "out" / f"{span}.1.parquet")["name"].to_pylist() == ["a", "b"]


def test_more_rows_of_the_same_records_than_a_file_takes_are_in_two(tmp_path, writer, monkeypatch):
    monkeypatch.setattr("kafka_actors.sinks.parquet.MAX_BUFFERED_BYTES", 1)
    for first in (0, 5):
        writer.write(rows(first, 5), Origin("t", 0, 0, 9))
    writer.flush()
    assert len(names(tmp_path / "out")) == 2
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == list(range(10))


def test_a_write_that_fails_has_taken_none_of_its_rows(tmp_path, writer, monkeypatch):
    monkeypatch.setattr("kafka_actors.sinks.parquet.MAX_BUFFERED_BYTES", 1)
    writer.write(rows(0, 10), Origin("t", 0, 0, 9))
    target = tmp_path / "out" / f"t-0-{0:020d}-{9:020d}.parquet"
    target.mkdir()
    (target / "in the way").touch()
    for _ in range(3):
        with pytest.raises(OSError, match="t-0-"):
            writer.write(rows(10, 10), Origin("t", 0, 10, 19))
    (target / "in the way").unlink()
    target.rmdir()
    writer.write(rows(10, 10), Origin("t", 0, 10, 19))
    writer.flush()
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == list(range(20))


def test_a_flush_that_fails_leaves_no_file_and_keeps_the_rows(tmp_path, writer):
    writer.write(rows(0, 10), Origin("t", 0, 0, 9))
    target = tmp_path / "out" / f"t-0-{0:020d}-{9:020d}.parquet"
    target.mkdir()
    (target / "in the way").touch()
    with pytest.raises(OSError, match="t-0-"):
        writer.flush()
    assert names(tmp_path / "out") == [target.name]
    (target / "in the way").unlink()
    target.rmdir()
    writer.flush()
    assert pq.read_table(target).num_rows == 10


@pytest.mark.parametrize("topic", ["_orders", ".orders", "o" * 249, "_" * 249])
def test_files_of_any_topic_are_seen_by_readers_of_the_directory(tmp_path, writer, topic):
    """They pass over names that begin with a dot or an underscore, and a file's name has 255 characters at most."""
    writer.write(rows(0, 10), Origin(topic, 2**31 - 1, 0, 9))
    writer.write(pa.record_batch({"name": ["a"]}), Origin(topic, 2**31 - 1, 0, 9))
    writer.flush()
    assert [name for name in names(tmp_path / "out") if name.startswith(("_", "."))] == []
    read = [pq.read_table(tmp_path / "out" / name).num_rows for name in names(tmp_path / "out")]
    assert sorted(read) == [1, 10]


def test_no_two_topics_have_files_of_one_name(tmp_path, writer):
    topics = ["_o", ".o", "topic-_o", "topic._o", "o" * 249, "o" * 248 + "p", "_" + "o" * 248, "o" * 140]
    for number, topic in enumerate(topics):
        writer.write(rows(number, 1), Origin(topic, 0, 0, 0))
    writer.flush()
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == list(range(len(topics)))


def test_rows_that_no_file_can_have_are_refused_when_they_are_written(tmp_path, writer):
    """An error of the flush would be that of all rows: nobody could skip those at fault."""
    writer.write(rows(0, 10), Origin("t", 0, 0, 9))
    empty = pa.record_batch({"tags": pa.array([{}], pa.struct([]))})
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="tags"):
            writer.write(empty, Origin("t", 0, 10, 10))
    writer.write(rows(11, 1), Origin("t", 0, 11, 11))
    writer.flush()
    assert names(tmp_path / "out") == [f"t-0-{0:020d}-{11:020d}.parquet"]


def test_a_directory_may_be_given_as_a_uri(tmp_path):
    made = ParquetSink(f"file://{tmp_path}/deep/er/").open(ClientConfig())
    made.write(rows(0, 1), Origin("t", 0, 0, 0))
    made.flush()
    assert len(names(tmp_path / "deep" / "er")) == 1


@pytest.fixture
def overtaking(tmp_path):
    """A writer of a job whose calls overlap."""
    config = build(JobConfig, group_id="g", bootstrap_servers="h:1", ordering="key")
    return ParquetSink(str(tmp_path / "out")).open(config)


def made_of(*offsets):
    """Rows of these records of t-0, and their origin."""
    packed = np.array(offsets, np.int64).tobytes()
    return pa.record_batch({"id": pa.array(offsets, pa.int64())}), Origin(
        "t", 0, min(offsets), max(offsets), packed
    )


def test_calls_that_overtake_each_other_write_into_one_file(tmp_path, overtaking):
    for offsets in ([7, 9], [2, 3], [4], [8]):
        overtaking.write(*made_of(*offsets))
    overtaking.flush()
    (name,) = names(tmp_path / "out")
    assert name.startswith(f"t-0-{2:020d}-{9:020d}-")
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == [7, 9, 2, 3, 4, 8]


def test_only_a_file_of_the_same_records_takes_ones_place(tmp_path, overtaking):
    """Between two others a record is committed as done, which then doesn't come again: a file from the first to the last would lose it."""
    overtaking.write(*made_of(100, 150, 200))
    overtaking.flush()
    (before,) = names(tmp_path / "out")
    for again in ((100, 200), (100, 120, 200)):
        overtaking.write(*made_of(*again))
        overtaking.flush()
    assert len(names(tmp_path / "out")) == 3
    assert 150 in pq.read_table(tmp_path / "out")["id"].to_pylist()
    for part in ((200,), (100, 150)):  # the same ones in other calls
        overtaking.write(*made_of(*part))
    overtaking.flush()
    assert len(names(tmp_path / "out")) == 3
    assert pq.read_table(tmp_path / "out" / before)["id"].to_pylist() == [200, 100, 150]


def test_records_in_the_order_in_which_they_failed_keep_their_file(tmp_path, overtaking):
    """Retry topics have them so: 5, 9, 7 are as many as 5 to 7, and a file of those took the place of theirs."""
    for offsets in ([5, 9, 7], [5, 6, 7]):
        columns = {"topic": ["t"] * 3, "partition": [0] * 3, "offset": pa.array(offsets, pa.int64())}
        overtaking.write(
            pa.record_batch({"id": pa.array(offsets, pa.int64())}), origin_of(pa.record_batch(columns))
        )
        overtaking.flush()
    assert 9 in pq.read_table(tmp_path / "out")["id"].to_pylist()


def test_two_results_of_the_same_records_are_in_two_files_also_where_calls_overlap(tmp_path, overtaking):
    for _ in range(2):
        rows, origin = made_of(1, 3)
        overtaking.write(rows, origin)
        overtaking.write(pa.record_batch({"name": ["a", "b"]}), origin)
        overtaking.flush()
    assert len(names(tmp_path / "out")) == 2
