"""Columns as the keys of records."""

import pyarrow as pa
import pytest

from kafka_actors.pipeline.encode import key_values


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array(["a", None]), [b"a", None]),
        (pa.array([7, None]), [b"7", None]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["a", None])), [None, b"a", None]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([b"\xff"])), [b"\xff", b"\xff"]),
    ],
    ids=["text", "numbers", "bytes", "encoded", "encoded-bytes"],
)
def test_theme_32_keys_are_texts_or_bytes_and_null_is_no_key(column, keys):
    assert key_values(column).to_pylist() == keys
