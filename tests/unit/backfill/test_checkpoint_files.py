"""The files of a checkpoint on this machine: made once and whole; and how far a query is, as they say."""

import errno
import json
import os
import threading

import pytest

from kafka_actors.backfill.checkpoint_files import LocalFiles, files_of, finished_offsets
from kafka_actors.errors import ConfigError, HandoverError
from kafka_actors.types import TopicPartition


def test_a_file_is_made_once_and_the_directory_with_it(tmp_path):
    files = LocalFiles(tmp_path / "not" / "there")
    assert files.read("handover.json") is None
    assert files.names("commits") == []
    assert files.create("handover.json", "one")
    assert not files.create("handover.json", "two")
    assert files.read("handover.json") == "one"
    assert files.names(".") == ["handover.json"]


def test_of_many_who_make_it_at_the_same_moment_one_does(tmp_path):
    files = LocalFiles(tmp_path)
    barrier, made = threading.Barrier(8), []

    def make(number):
        barrier.wait()
        if files.create("handover.json", str(number) * 100_000):
            made.append(number)

    threads = [threading.Thread(target=make, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [first] = made
    assert files.read("handover.json") == str(first) * 100_000
    assert os.listdir(tmp_path) == ["handover.json"]


def test_a_crash_while_it_is_written_leaves_no_file(tmp_path, monkeypatch):
    def dies(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", dies)
    with pytest.raises(OSError, match="No space left"):
        LocalFiles(tmp_path).create("handover.json", "text")
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_links_is_refused(tmp_path, monkeypatch):
    def refuses(source, target):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuses)
    with pytest.raises(ConfigError, match=r"checkpoint: is .* its file system has no hard links"):
        LocalFiles(tmp_path).create("handover.json", "text")


def test_a_connect_session_is_refused():
    with pytest.raises(ConfigError, match="spark: is a Spark Connect session"):
        files_of(object(), "/data")


# ---------------------------------------------------------------- how far a query is

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Checkpoint:
    def __init__(self, directory):
        self.directory = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir()

    def plan(self, batch, *sources, form="v1"):
        texts = [json.dumps(source) for source in sources]
        if form == "v2":
            texts = [f"{number}:{text}" for number, text in enumerate(texts)]
        lines = [form, "{}", *texts]
        (self.directory / "offsets" / str(batch)).write_text("\n".join(lines))

    def finish(self, batch):
        (self.directory / "commits" / str(batch)).write_text("v1\n{}")
        (self.directory / "commits" / f".{batch}.crc").write_text("")

    def finished(self):
        return finished_offsets(LocalFiles(self.directory), {"t"})


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path)


def test_only_batches_that_are_finished_count_and_the_last_of_them(checkpoint):
    assert checkpoint.finished() is None
    checkpoint.plan(9, {"t": {"0": 1}, "@start": {"t": {"0": 0}}})
    assert checkpoint.finished() is None
    checkpoint.finish(9)
    checkpoint.plan(10, {"t": {"0": 5, "1": 2}, "@topic_ids": {"t": "0a"}})
    assert checkpoint.finished() == [{T0: 1}]
    checkpoint.finish(10)
    checkpoint.plan(11, {"t": {"0": 7}})
    assert checkpoint.finished() == [{T0: 5, T1: 2}]


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_sources_of_other_topics_are_passed_over(checkpoint, form):
    """In both versions of Spark's offset log: spark.sql.streaming.offsetLog.formatVersion."""
    checkpoint.plan(0, {"t": {"0": 1}}, {"other": {"0": 9}}, {"t": {"0": 3}}, form=form)
    checkpoint.finish(0)
    assert checkpoint.finished() == [{T0: 1}, {T0: 3}]


@pytest.mark.parametrize("missing", [True, False])
def test_a_checkpoint_that_is_not_whole_or_of_another_form_is_named(checkpoint, missing):
    if not missing:
        checkpoint.plan(0, {}, form="v3")
    checkpoint.finish(0)
    said = r"commits/0 has no offsets/0" if missing else "offsets/0 has version 'v3': v1 and v2 are known"
    with pytest.raises(HandoverError, match=said):
        checkpoint.finished()
