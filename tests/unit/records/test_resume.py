"""Where reading goes on behind a batch that can't be read: never too far, at the worst at the same batch again."""

import struct

import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.records import _reference
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.records.resume import is_cut_off, resume_offset

CRC_AT = 17
BASE_AT = 0


@pytest.fixture(params=[ACTIVE, _reference], ids=["active", "reference"])
def kernel(request):
    return request.param


def batch(base, count=3):
    return records.encode(pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())}), base_offset=base)


def bad(base, count=3):
    """A batch with a wrong checksum."""
    data = bytearray(batch(base, count))
    data[CRC_AT] ^= 0xFF
    return bytes(data)


def view(*parts):
    return memoryview(b"".join(parts))


def test_a_sound_batch_is_believed_about_its_end(kernel):
    assert resume_offset(view(batch(10)), 0, 10, kernel) == (10, 13)


def test_records_that_were_read_are_not_lost_again(kernel):
    assert resume_offset(view(batch(10)), 0, 12, kernel) == (12, 13)


def test_a_bad_batch_ends_where_a_sound_one_begins(kernel):
    assert resume_offset(view(bad(10), batch(13)), 0, 10, kernel) == (10, 13)
    assert resume_offset(view(bad(10)), 0, 10, kernel, following=view(batch(13))) == (10, 13)


def test_offsets_that_compaction_left_out_are_not_skipped_with_a_bad_batch(kernel):
    assert resume_offset(view(bad(10), batch(20)), 0, 10, kernel) == (10, 13)


def test_an_end_that_is_claimed_behind_the_next_batch_is_not_believed(kernel):
    assert resume_offset(view(bad(10, 9), batch(13)), 0, 10, kernel) == (10, 13)


def test_a_bad_batch_alone_is_believed_only_at_the_end_of_the_log(kernel):
    assert resume_offset(view(bad(10)), 0, 10, kernel) == (10, None)
    assert resume_offset(view(bad(10)), 0, 10, kernel, log_end=13) == (10, 13)
    assert resume_offset(view(bad(10)), 0, 10, kernel, log_end=20) == (10, None)


def test_two_bad_batches_say_nothing_about_each_other(kernel):
    assert resume_offset(view(bad(10), bad(13)), 0, 10, kernel) == (10, None)


def test_a_batch_behind_the_end_of_the_log_is_not_believed(kernel):
    assert resume_offset(view(bad(10), batch(13)), 0, 10, kernel, log_end=12) == (10, None)


@pytest.mark.parametrize("length", [-1, 3])
def test_what_can_be_no_header_ends_nowhere(kernel, length):
    data = bytearray(batch(10))
    struct.pack_into(">i", data, 8, length)
    assert resume_offset(view(bytes(data), batch(13)), 0, 10, kernel) == (10, None)


def test_a_response_may_end_before_the_batch_that_would_tell():
    whole, next_one = bad(10), batch(13)
    assert not is_cut_off(view(whole, next_one), 0, 16)
    assert is_cut_off(view(whole, next_one[:-1]), 0, 16)
    assert is_cut_off(view(whole, next_one[:10]), 0, 16)
    assert is_cut_off(view(whole), 0, 16)
    assert not is_cut_off(view(whole), 0, 13)
    assert not is_cut_off(view(whole), 0, None)
    assert not is_cut_off(view(whole[:-1]), 0, 16)
