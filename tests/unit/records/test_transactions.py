"""The aborted list of a fetch response, by the rules of the Java consumer."""

import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.errors import CorruptRecordBatchError
from kafka_actors.records.transactions import AbortedTransactions


def data(base: int, producer: int, transactional: bool = True, codec: str = "none") -> bytes:
    rows = pa.record_batch({"value": pa.array([b"%d" % producer] * 2)})
    return records.encode(
        rows, base_offset=base, producer_id=producer, is_transactional=transactional, codec=codec
    )


def marker(base: int, producer: int, kind: bytes, codec: str = "none") -> bytes:
    row = pa.record_batch({"key": pa.array([b"\0\0\0" + kind]), "value": pa.array([b"\0\0\0\0\0\0"])})
    options = {"is_transactional": True, "is_control": True, "codec": codec}
    return records.encode(row, base_offset=base, producer_id=producer, **options)


ABORT, COMMIT = b"\0", b"\1"


def committed(*batches: bytes, aborted=()) -> tuple[list[int], int]:
    decoder = records.Decoder("t", 0, isolation_level="read_committed", aborted=aborted)
    offsets = [o for c in decoder.feed(b"".join(batches)) for o in c.batch.column("offset").to_pylist()]
    return offsets, decoder.next_offset


def test_an_abort_marker_ends_the_range_of_its_producer_only():
    batches = [data(0, 1), data(2, 2), marker(4, 1, ABORT), data(5, 1), marker(7, 2, ABORT), data(8, 2)]
    assert committed(*batches, aborted=[(2, 2), (1, 0)]) == ([5, 6, 8, 9], 10)


@pytest.mark.parametrize(
    "aborted", [[(2, 2), (1, 0)], [(1, 0), (2, 2), (1, 0), (2, 2)], [(1, 5), (2, 2), (1, 0)]]
)
def test_a_list_that_is_unsorted_or_has_entries_twice_is_read_right(aborted):
    batches = [data(0, 1), data(2, 2), marker(4, 1, ABORT), data(5, 1)]
    after = [marker(7, 1, ABORT if (1, 5) in aborted else COMMIT), data(8, 1)]
    assert committed(*batches, *after, aborted=aborted) == (
        [*([] if (1, 5) in aborted else [5, 6]), 8, 9],
        10,
    )


def test_a_commit_marker_ends_nothing_and_needs_no_entry():
    assert committed(data(0, 1), marker(2, 1, COMMIT), data(3, 1)) == ([0, 1, 3, 4], 5)


def test_a_fetch_that_starts_on_a_marker_without_entry():
    assert committed(marker(0, 1, ABORT), data(1, 1)) == ([1, 2], 3)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_aborts_do_not_leak(codec):
    batches = [data(0, 1, codec=codec), marker(2, 1, ABORT, codec=codec), data(3, 1, codec=codec)]
    assert committed(*batches, aborted=[(1, 0)]) == ([3, 4], 5)


def test_aborted_batches_to_the_end_move_the_position():
    chunks = list(
        records.Decoder("t", 0, isolation_level="read_committed", aborted=[(1, 0)]).feed(
            data(0, 1) + data(2, 1)
        )
    )
    assert [(c.batch.num_rows, c.next_offset) for c in chunks] == [(0, 4)]


def test_batches_outside_transactions_are_kept():
    assert committed(data(0, 1, transactional=False), aborted=[(1, 0)]) == ([0, 1], 2)


def test_read_uncommitted_heeds_no_list():
    decoder = records.Decoder("t", 0, aborted=[(1, 0)])
    assert [c.batch.num_rows for c in decoder.feed(data(0, 1))] == [2]


def test_a_marker_that_cannot_be_read_is_an_error_where_it_matters():
    row = pa.record_batch({"key": pa.array([b"\0"]), "value": pa.array([b""])})
    broken = records.encode(row, base_offset=2, producer_id=1, is_transactional=True, is_control=True)
    with pytest.raises(CorruptRecordBatchError, match="control record"):
        committed(data(0, 1), broken, aborted=[(1, 0)])
    assert committed(data(0, 1), broken) == ([0, 1], 3)


def test_the_list_is_used_up():
    aborted = AbortedTransactions([(7, 10), (8, 5)])
    assert aborted.active
    aborted.advance(5)
    assert aborted.is_aborted(8)
    assert not aborted.is_aborted(7)
    aborted.advance(10)
    aborted.end(8)
    aborted.end(7)
    aborted.end(9)
    assert not aborted.active
