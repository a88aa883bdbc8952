"""The layout of a record batch's header."""

import struct

import crc32c
import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    TABLE_WIDTH,
    ColumnField,
    is_compressed,
    new_table,
)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_header_tells_whether_its_batch_is_compressed(codec):
    batch = pa.record_batch({"value": pa.array([b"a" * 100])})
    data = memoryview(records.encode(batch, codec=codec, is_transactional=True))
    assert is_compressed(data) is (codec != "none")
    assert is_compressed(data[:60]) is False


def test_fields_of_the_header_are_where_kafka_has_them():
    """DefaultRecordBatch of Kafka: base offset, length, leader epoch, magic, CRC, attributes, … up to the count at 57."""
    data = records.encode(pa.record_batch({"value": pa.array([b"v"] * 3, pa.binary())}), base_offset=7)
    assert HEADER_SIZE == 61
    assert struct.unpack_from(">q", data, 0) == (7,)
    assert struct.unpack_from(">i", data, 8) == (len(data) - LOG_OVERHEAD,)
    assert data[MAGIC_AT] == 2
    assert struct.unpack_from(">I", data, CRC_AT) == (crc32c.crc32c(data[ATTRIBUTES_AT:]),)
    assert struct.unpack_from(">i", data, 23) == (2,)  # the last offset's distance
    assert struct.unpack_from(">i", data, 57) == (3,)


def test_a_table_of_batches_has_a_column_for_each_field():
    table = new_table(2)
    assert table.shape == (2, TABLE_WIDTH)
    assert len(ColumnField) <= TABLE_WIDTH
    assert not table.any()
