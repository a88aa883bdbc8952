"""Batches as brokers see them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fakes.fake_wire import NOW_MS, record_batch

from kafka_actors.records import encode
from kafka_actors.testing.fake_kafka.machines.record_batches import (
    CorruptBatchError,
    OldFormatError,
    parse,
    parse_all,
    readable,
)


def test_a_batch_gets_its_place_without_another_checksum() -> None:
    batch = parse(record_batch(b"a", b"b", producer=(7, 1, 40)))
    placed = batch.placed(100, 3)
    assert (placed.base_offset, placed.last_offset, placed.leader_epoch) == (100, 101, 3)
    assert (placed.producer_id, placed.producer_epoch, placed.base_sequence, placed.last_sequence) == (
        7,
        1,
        40,
        41,
    )
    assert placed.is_valid
    assert placed.data[17:] == batch.data[17:]


def test_under_log_append_time_all_records_have_the_broker_s_time() -> None:
    placed = parse(record_batch(b"a", b"b")).placed(0, 0, 55)
    assert placed.is_valid
    assert placed.log_append_time
    assert [r.timestamp for r in placed.records()] == [55, 55]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_each_codec_are_read(codec: str) -> None:
    rows = pa.record_batch({"key": [b"k", None], "value": [b"v" * 100, b""]})
    batch = parse(encode(rows, codec=codec)).placed(10, 0)  # type: ignore[arg-type]
    assert [(r.offset, r.key, r.value) for r in batch.records()] == [(10, b"k", b"v" * 100), (11, None, b"")]
    assert batch.is_zstd == (codec == "zstd")


def test_sequences_begin_anew_behind_the_largest() -> None:
    assert parse(record_batch(b"a", b"b", b"c", producer=(1, 0, 2**31 - 2))).last_sequence == 0


def test_what_is_left_of_a_batch_keeps_its_offsets_and_producer() -> None:
    batch = parse(record_batch(b"a", b"b", b"c", producer=(7, 1, 40))).placed(100, 3)
    left = batch.with_only([list(batch.records())[1]])
    assert left.is_valid
    assert [(r.offset, r.value, r.timestamp) for r in left.records()] == [(101, b"b", NOW_MS)]
    assert (left.base_offset, left.last_offset, left.last_sequence) == (100, 102, 42)


def test_what_is_no_batch_is_told_apart() -> None:
    data = record_batch(b"a")
    assert len(list(parse_all(data + data[:30]))) == 1, "one that is cut off is left out"
    with pytest.raises(CorruptBatchError):
        parse(data + data)
    with pytest.raises(OldFormatError):
        parse(data[:16] + b"\x01" + data[17:])
    with pytest.raises(CorruptBatchError):
        parse(data[:8] + b"\0\0\0\x01" + data[12:])
    broken = bytearray(data)
    broken[-1] ^= 1
    assert not parse(bytes(broken)).is_valid
    broken[61] = 0
    assert readable(parse(bytes(broken))) is None
