"""The log of a partition."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from fakes.fake_wire import NOW_MS, record_batch

from kafka_actors import errors
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.log_segments import Retention
from kafka_actors.testing.fake_kafka.machines.partition_log import (
    FoundOffset,
    InvalidRecords,
    LogLimits,
    PartitionLog,
)
from kafka_actors.testing.fake_kafka.machines.record_batches import parse

LIMITS = LogLimits()


def filled(*sizes: int) -> PartitionLog:
    """A log of batches with so many records, each with a timestamp of its own."""
    log = PartitionLog()
    for size in sizes:
        stamps = [NOW_MS + log.end_offset + i for i in range(size)]
        log.append(parse(record_batch(*[b"v"] * size, timestamps=stamps)), 0, LIMITS, NOW_MS)
    return log


def test_batches_get_offsets_one_after_the_other() -> None:
    log = PartitionLog()
    assert log.append(parse(record_batch(b"a", b"b")), 4, LIMITS, NOW_MS) == (0, -1)
    assert log.append(parse(record_batch(b"c")), 4, LIMITS, NOW_MS) == (2, -1)
    assert [b.leader_epoch for b in log.batches] == [4, 4]
    appended = log.append(parse(record_batch(b"d")), 4, LogLimits(log_append_time=True), NOW_MS + 5)
    assert appended == (3, NOW_MS + 5)


def test_a_duplicate_is_answered_with_its_timestamp_and_not_written() -> None:
    log = PartitionLog()
    data = record_batch(b"a", producer=(1, 0, 0))
    assert log.append(parse(data), 0, LIMITS, NOW_MS + 9) == (0, -1)
    assert log.append(parse(data), 0, LIMITS, NOW_MS + 9) == (0, NOW_MS)
    assert log.end_offset == 1


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


GOOD = record_batch(b"a", b"b")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (GOOD[:-1] + b"x", errors.CorruptMessageError),
        (changed(GOOD, 0, ">q", 5), errors.InvalidRecordError),
        (changed(GOOD, 23, ">i", 5), errors.InvalidRecordError),
        (changed(GOOD, 21, ">h", 0x20), errors.InvalidRecordError),
        (record_batch(b"a", producer=(3, 0, -1)), errors.InvalidRecordError),
        (record_batch(b"x" * 500), errors.MessageTooLargeError),
        (record_batch(b"a", timestamps=[NOW_MS + 2_000]), errors.InvalidTimestampError),
        (record_batch(b"a", timestamps=[NOW_MS - 4_000]), errors.InvalidTimestampError),
    ],
)
def test_what_a_broker_would_not_write_is_refused(data: bytes, error: type[errors.KafkaError]) -> None:
    limits = LogLimits(max_message_bytes=400, timestamp_after_max_ms=1_000, timestamp_before_max_ms=3_000)
    log = PartitionLog()
    with pytest.raises(Refused) as refused:
        log.append(parse(data), 0, limits, NOW_MS)
    assert refused.value.code == error.code
    assert log.end_offset == 0


def test_a_batch_that_says_log_append_time_is_taken_under_create_time_and_refused_under_its_own() -> None:
    log, batch = PartitionLog(), parse(changed(GOOD, 21, ">h", 0x08))
    assert log.append(batch, 0, LIMITS, NOW_MS) == (0, -1)
    assert not log.batches[0].log_append_time
    assert log.batches[0].is_valid
    with pytest.raises(InvalidRecords) as refused:
        log.append(batch, 0, LogLimits(log_append_time=True), NOW_MS)
    assert refused.value.code == errors.InvalidTimestampError.code


def test_a_compacted_topic_wants_keys_and_says_which_records_have_none() -> None:
    batch = parse(record_batch(b"a", b"b", keys=[b"k", None]))
    with pytest.raises(InvalidRecords) as refused:
        PartitionLog().append(batch, 0, LogLimits(compacted=True), NOW_MS)
    assert refused.value.indexes == [1]


def test_reading_begins_with_the_batch_of_the_offset_and_cuts_the_last_one() -> None:
    log = filled(2, 2, 2)
    first, second, third = (b.data for b in log.batches)
    assert log.read(1, 1 << 20, at_least_one=True) == first + second + third
    assert log.read(2, len(second) + 5, at_least_one=False) == second + third[:5]
    assert log.read(2, 10, at_least_one=True) == second, "the first one whole, whatever its size (KIP-74)"
    assert log.read(2, 10, at_least_one=False) == b""
    assert log.read(6, 10, at_least_one=True) == b""
    assert log.bytes_from(3) == len(second) + len(third)
    for offset in (-1, 7):
        with pytest.raises(Refused):
            log.read(offset, 10, at_least_one=True)


def test_offsets_are_found_by_time() -> None:
    log = filled(2, 3)
    assert log.offset_for_timestamp(0) == FoundOffset(0, NOW_MS, 0)
    assert log.offset_for_timestamp(NOW_MS + 3) == FoundOffset(3, NOW_MS + 3, 0)
    assert log.offset_for_timestamp(NOW_MS + 5) is None
    assert log.offset_of_max_timestamp() == FoundOffset(4, NOW_MS + 4, 0)
    log.delete_before(1)
    assert log.offset_for_timestamp(0) == FoundOffset(1, NOW_MS + 1, 0)
    assert PartitionLog().offset_of_max_timestamp() is None
    log.delete_before(5)
    assert log.offset_of_max_timestamp() == FoundOffset(4, NOW_MS + 4, 0), "it is in its segment still"
    log.truncate(2)
    assert log.offset_of_max_timestamp() is None


def test_ends_of_leader_epochs() -> None:
    log = PartitionLog()
    assert log.end_of_epoch(0) == (-1, -1)
    log.begin_epoch(0)
    log.append(parse(GOOD), 0, LIMITS, NOW_MS)
    log.begin_epoch(1)
    log.begin_epoch(3)  # nothing was written in epoch 1
    log.append(parse(GOOD), 3, LIMITS, NOW_MS)
    assert [log.end_of_epoch(e) for e in (0, 1, 2, 3, 4, -1)] == [
        (0, 2),
        (0, 2),
        (0, 2),
        (3, 4),
        (-1, -1),
        (-1, -1),
    ]
    assert log.earliest_epoch == 0
    log.delete_before(3)
    assert log.earliest_epoch == 3
    assert log.end_of_epoch(0) == (0, 3), "older than all: where the first known one begins"


def test_deleted_records_go_by_whole_batches() -> None:
    log = filled(2, 2)
    log.delete_before(3)
    assert (log.start_offset, log.end_offset, len(log.batches)) == (3, 4, 1)
    log.delete_before(1)
    assert log.start_offset == 3


def test_a_truncated_log_goes_on_at_its_new_end_and_knows_the_producers_that_are_left() -> None:
    log = PartitionLog()
    log.append(parse(record_batch(b"a", producer=(1, 0, 0))), 0, LIMITS, NOW_MS)
    log.append(parse(record_batch(b"b", producer=(2, 0, 0))), 1, LIMITS, NOW_MS)
    log.truncate(1)
    assert log.end_offset == 1
    assert 1 in log.producers
    assert 2 not in log.producers
    assert log.end_of_epoch(0) == (0, 1), "epoch 1 went with its batch"
    log.truncate(0)
    assert (log.start_offset, log.end_offset) == (0, 0)


def test_compaction_keeps_the_last_record_of_a_key_outside_of_the_last_batch() -> None:
    log = PartitionLog()
    for keys, values in [([b"a", b"b"], [b"1", b"2"]), ([b"a", b"c"], [b"3", None]), ([b"b"], [b"4"])]:
        log.append(parse(record_batch(*values, keys=keys, producer=(-1, -1, -1))), 0, LIMITS, NOW_MS)  # type: ignore[arg-type]
    log.compact()
    left = [(r.offset, r.key) for batch in log.batches for r in batch.records()]
    assert left == [(1, b"b"), (2, b"a"), (3, b"c"), (4, b"b")]
    log.compact(keep_tombstones=False)
    assert [r.offset for batch in log.batches for r in batch.records()] == [1, 2, 4]
    assert log.end_offset == 5
    assert log.read(0, 1 << 20, at_least_one=True) == b"".join(b.data for b in log.batches)


def test_the_largest_timestamp_of_a_compacted_log_is_that_of_a_record_that_is_left() -> None:
    log = PartitionLog()
    limits = LogLimits(compacted=True, retention=Retention(retention_ms=1_000, segment_bytes=1))
    for keys, ages in [([b"a", b"a"], [10, 500]), ([b"b"], [700])]:
        stamps = [NOW_MS - age for age in ages]
        log.append(parse(record_batch(*[b"v"] * len(keys), keys=keys, timestamps=stamps)), 0, limits, NOW_MS)
    log.compact()
    assert log.offset_of_max_timestamp() == FoundOffset(1, NOW_MS - 500, 0)
    assert not log.retain(limits.retention, NOW_MS + 500)
    assert log.retain(limits.retention, NOW_MS + 501)
    assert log.start_offset == 3


def test_compaction_keeps_a_producer_s_last_batch_even_without_records() -> None:
    log = PartitionLog()
    for sequence in range(2):
        log.append(parse(record_batch(b"v", keys=[b"k"], producer=(sequence, 0, 0))), 0, LIMITS, NOW_MS)
    log.append(parse(record_batch(b"v", keys=[b"z"])), 0, LIMITS, NOW_MS)
    log.compact()
    assert [(b.producer_id, b.count) for b in log.batches] == [(0, 0), (1, 1), (-1, 1)]


def test_a_log_that_loses_its_only_batch_ends_where_that_began() -> None:
    """Replicas have whole batches: the one that lacks this has nothing of it."""
    log = PartitionLog()
    log.append(parse(record_batch(b"a", b"b", b"c", producer=(-1, -1, -1))), 0, LIMITS, NOW_MS)
    log.truncate(2)
    assert (log.start_offset, log.end_offset) == (0, 0)
