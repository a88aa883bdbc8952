"""The plain twin of the kernel by itself; that it agrees with the kernel byte for byte is shown by the property tests."""

import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.records import _reference
from kafka_actors.records.batch import ColumnField, Scan, new_table


def batch(base, count=2, **options):
    return records.encode(
        pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())}), base_offset=base, **options
    )


def scan(data, *, table_rows=4, span=1 << 20):
    """The offsets of the batches that were entered, the position behind them, and why the scan stopped."""
    table = new_table(table_rows)
    entered, position, status, _, _ = _reference.scan(data, 0, table, span)
    return [int(row[ColumnField.BASE_OFFSET]) for row in table[:entered]], position, Scan(status)


def test_checksums_are_castagnolis():
    assert _reference.crc32c(b"123456789") == 0xE3069283  # RFC 3720's polynomial, its usual check value
    assert _reference.crc32c(b"") == 0


def test_batches_in_a_row_are_entered_up_to_the_last_whole_one():
    data = batch(10) + batch(12, 3)
    assert scan(data) == ([10, 12], len(data), Scan.END)
    assert scan(data + batch(15)[:-1]) == ([10, 12], len(data), Scan.END)


@pytest.mark.parametrize(("data", "end"), [(b"", None), (batch(10), 12), (batch(10) + batch(12, 3), 15)])
def test_the_end_of_a_response_is_behind_its_last_whole_batch(data, end):
    assert _reference.next_offset(data) == end
    assert _reference.next_offset(data + batch(50)[:-1]) == end


def test_the_scan_ends_where_its_table_or_its_span_is_full():
    data = batch(10) + batch(12) + batch(14)
    assert scan(data, table_rows=2) == ([10, 12], len(data) * 2 // 3, Scan.MORE)
    assert scan(data, span=1) == ([10], len(data) // 3, Scan.MORE)


def test_the_scan_ends_in_front_of_a_batch_that_is_wrong():
    first, second = batch(10), batch(12)
    corrupt = second[:-1] + bytes([second[-1] ^ 0xFF])
    assert scan(first + corrupt) == ([10], len(first), Scan.BAD_CRC)
    unknown = second[:16] + b"\3" + second[17:]
    assert scan(first + unknown) == ([10], len(first), Scan.BAD_MAGIC)
    short = second[:8] + (5).to_bytes(4, "big") + second[12:]
    assert scan(first + short) == ([10], len(first), Scan.BAD_LENGTH)
