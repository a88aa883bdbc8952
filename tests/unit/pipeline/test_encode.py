"""Columns as the keys of records."""

import pandas as pd
import pyarrow as pa
import pytest

from kafka_actors.pipeline.encode import json_values, key_values


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array(["a", None]), [b"a", None]),
        (pa.array([7, None]), [b"7", None]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.array([b"\xff\xfe", None], pa.binary(2)), [b"\xff\xfe", None]),
        (pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None]),
        (pa.array([b"\xff", None], pa.binary_view()), [b"\xff", None]),
        (pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["a", None])), [None, b"a", None]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([b"\xff"])), [b"\xff", b"\xff"]),
    ],
    ids=["text", "numbers", "bytes", "fixed", "large", "view", "encoded", "encoded-bytes"],
)
def test_theme_32_keys_are_texts_or_bytes_and_null_is_no_key(column, keys):
    assert key_values(column).to_pylist() == keys


def test_nanoseconds_are_written_wherever_they_are_as_microseconds():
    """pyarrow gives those of pandas as objects of pandas, which no JSON encoder knows."""
    at = pd.Timestamp("2026-01-02T03:04:05.000006")
    kind = pa.struct([("l", pa.list_(pa.timestamp("ns"))), ("m", pa.map_(pa.string(), pa.timestamp("ns")))])
    batch = pa.RecordBatch.from_arrays([pa.array([{"l": [at], "m": {"a": at}}], kind)], names=["x"])
    text = "2026-01-02T03:04:05.000006"
    assert json_values(batch).to_pylist() == [
        b'{"x":{"l":["%b"],"m":{"a":"%b"}}}' % (text.encode(), text.encode())
    ]
