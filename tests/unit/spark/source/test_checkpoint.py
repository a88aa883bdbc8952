"""The offsets in a stopped query's checkpoint, from one source's form to the other's."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fakes.registries import RegistryInMemory

import kafka_actors as ka
from kafka_actors.spark.source import checkpoint
from kafka_actors.spark.source.checkpoint import QueryCheckpoint, as_before
from kafka_actors.spark.source.machines.stream_offsets import KeptSchema, StreamOffsets
from kafka_actors.spark.source.offset_format import StateFiles, TextFiles
from kafka_actors.types import TopicPartition

T0 = TopicPartition("t", 0)
OLD = b"\x01" * 16
METADATA = '{"batchWatermarkMs":0,"conf":{}}'


def ours(end: int, start: int | None = None) -> dict[str, Any]:
    return StreamOffsets({T0: end}, {"t": OLD}, None if start is None else {T0: start}).to_json()


class Files:
    """A checkpoint: the offsets of its batches, with a rate source before and an empty one behind."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir()

    def write(self, batch: int, offsets: dict[str, Any], *, finished: bool = True) -> None:
        text = "\n".join(["v1", METADATA, "17", json.dumps(offsets), "-"])
        (self.path / "offsets" / str(batch)).write_text(text)
        (self.path / "offsets" / f".{batch}.crc").write_bytes(b"crc of other bytes")
        if finished:
            (self.path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def offsets(self, batch: int) -> Any:
        lines = (self.path / "offsets" / str(batch)).read_text().split("\n")
        assert (lines[:3], lines[4:]) == (["v1", METADATA, "17"], ["-"])
        return json.loads(lines[3])

    def convert(self, to: Any) -> list[int]:
        return QueryCheckpoint(str(self.path)).convert(to)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.write(0, ours(5, start=2))
    made.write(1, ours(8), finished=False)
    return made


def test_there_and_back_loses_nothing_however_often(files: Files) -> None:
    before = [files.offsets(batch) for batch in (0, 1)]
    for _ in range(2):
        assert files.convert("spark") == [0, 1]
        assert [files.offsets(batch) for batch in (0, 1)] == [{"t": {"0": 5}}, {"t": {"0": 8}}]
        assert (files.path / "sources" / "1" / "0").read_bytes() == b'\0v1\n{"t":{"0":2}}'
        assert not list((files.path / "offsets").glob(".*.crc")), "Hadoop would find another checksum"
        assert files.convert("spark") == []
        assert files.convert("kafka-actors") == [0, 1]
        assert [files.offsets(batch) for batch in (0, 1)] == before
        assert files.convert("kafka-actors") == []


def test_what_sparks_own_source_did_in_between_has_the_newest_ids(files: Files) -> None:
    files.convert("spark")
    files.write(2, {"t": {"0": 11}})
    assert files.convert("kafka-actors") == [0, 1, 2]
    assert files.offsets(2) == ours(11)


def test_an_unfinished_first_batch_of_sparks_own_source_gets_its_start(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(0, {"t": {"0": 5}}, finished=False)
    (tmp_path / "sources" / "1").mkdir(parents=True)
    (tmp_path / "sources" / "1" / "0").write_bytes(b'\0v1\n{"t":{"0":3}}')
    assert files.convert("kafka-actors") == [0]
    assert files.offsets(0) == {"t": {"0": 5}, "@start": {"t": {"0": 3}}}


def test_a_kill_in_between_is_mended_by_doing_it_again(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [files.offsets(batch) for batch in (0, 1)]
    write = TextFiles.write
    left = [0]

    def writes(self: TextFiles, name: str, text: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(self, name, text)

    for to in ("spark", "kafka-actors"):
        for left[0] in range(4):
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr(TextFiles, "write", writes)
                files.convert(to)
        files.convert(to)
    assert [files.offsets(batch) for batch in (0, 1)] == before


def test_names_of_sources_in_the_second_format(tmp_path: Path) -> None:
    files = Files(tmp_path)
    path = tmp_path / "offsets" / "0"
    path.write_text("\n".join(["v2", METADATA, "rates:17", f"orders:{json.dumps(ours(5))}", "none:-"]))
    assert files.convert("spark") == [0]
    assert path.read_text().split("\n")[2:] == ["rates:17", 'orders:{"t":{"0":5}}', "none:-"]
    assert [k.topic_ids for k in StateFiles(str(tmp_path / "sources" / "orders")).kept()] == [{"t": OLD}]


def test_offsets_of_other_sources_stay(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for offsets in ({"a": {}}, {"logOffset": 3}, {"sourceVersion": 1, "reservoirId": "x"}, {}):
        files.write(0, offsets)
        for to in ("spark", "kafka-actors"):
            assert files.convert(to) == []
        assert files.offsets(0) == offsets


# ---------------------------------------------------------------- the schema of a query that goes on


def test_a_schema_survives_there_and_back(tmp_path: Path) -> None:
    files = Files(tmp_path)
    end = StreamOffsets({T0: 5}, {"t": OLD}, schema=KeptSchema(7, "t-value", 3)).to_json()
    for batch in (0, 1):
        files.write(batch, end)
    QueryCheckpoint(str(tmp_path)).convert("spark")
    assert "@schema" not in (tmp_path / "offsets" / "1").read_text()
    QueryCheckpoint(str(tmp_path)).convert("kafka-actors")
    assert json.loads((tmp_path / "offsets" / "1").read_text().splitlines()[3]) == end


@pytest.fixture
def registry() -> RegistryInMemory:
    made = RegistryInMemory()
    for more in ([], [{"name": "x", "type": "long", "default": 1}]):
        fields = [{"name": "id", "type": "long"}, *more]
        made.add("t-value", {"type": "record", "name": "Order", "fields": fields})
    return made


@pytest.mark.parametrize(
    ("arguments", "kept", "version"),
    [
        ({}, KeptSchema(1, "t-value", 1), 1),
        ({}, None, 2),
        ({"version": 2}, KeptSchema(1, "t-value", 1), 2),
    ],
    ids=["before", "new", "named"],
)
def test_a_pipeline_goes_on_by_the_schema_of_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
    registry: RegistryInMemory,
    arguments: dict[str, Any],
    kept: KeptSchema | None,
    version: int,
) -> None:
    asked: list[bool] = []

    def found(spark: object, location: str, selects: Callable[[str], bool]) -> KeptSchema | None:
        asked.append(selects("t") and not selects("u"))
        return kept

    monkeypatch.setattr(checkpoint, "kept_schema", found)
    read = ka.Pipeline.read_kafka("t", bootstrap_servers="a:1").decode(registry, **arguments)
    for pipeline in (read, read.ready()):  # also one that was bound before
        made = as_before(pipeline, None, "/c").ready()
        assert made.stages[0].chosen_schema.version == version  # type: ignore[attr-defined]
    assert as_before(read, None, None) is read
    assert asked == ([] if arguments else [True, True])


def test_a_pipeline_that_goes_on_knows_the_schemas_of_all_its_topics(
    monkeypatch: pytest.MonkeyPatch, registry: RegistryInMemory
) -> None:
    """Where new ones fail, all values of the second topic would otherwise."""
    registry.add("u-value", registry.schemas[0].text)
    monkeypatch.setattr(checkpoint, "kept_schema", lambda *_: KeptSchema(1, "t-value", 1))
    read = ka.Pipeline.read_kafka(["t", "u"], bootstrap_servers="a:1")
    (stage,) = as_before(read.decode(registry, on_new_schema="fail"), None, "/c").stages
    rows = stage.decoder.decode(pa.array([b"\0\0\0\0\1\2", b"\0\0\0\0\3\4"], pa.binary()))  # type: ignore[attr-defined]
    assert (rows.batch.to_pylist(), rows.failures) == ([{"id": 1}, {"id": 2}], [])
