"""DDL strings as Spark reads them."""

import pyarrow as pa
import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.ddl import parse_ddl


@pytest.mark.parametrize(
    ("word", "arrow"),
    [
        ("BOOLEAN", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("BYTE", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("INT", pa.int32()),
        ("integer", pa.int32()),
        ("BIGINT", pa.int64()),
        ("long", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL", pa.decimal128(10, 0)),
        ("DECIMAL(5)", pa.decimal128(5, 0)),
        ("DECIMAL(12, 2)", pa.decimal128(12, 2)),
        ("STRING", pa.string()),
        ("VARCHAR(10)", pa.string()),
        ("BINARY", pa.binary()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("ARRAY<INT>", pa.list_(pa.int32())),
        ("MAP<STRING, ARRAY<INT>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        (
            "STRUCT<a: INT, b: STRUCT<c: DATE>>",
            pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.date32()})}),
        ),
    ],
)
def test_types(word, arrow):
    assert parse_ddl(f"x {word}") == pa.schema({"x": arrow})


def test_names_may_be_quoted_and_columns_not_null_or_with_a_comment():
    found = parse_ddl("id BIGINT NOT NULL COMMENT 'the id, of course', `odd, name ``1`` ` STRING,\n at: DATE")
    assert found.names == ["id", "odd, name `1` ", "at"]
    assert [f.nullable for f in found] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column's name, found the end"),
        ("id", "expected a type, found the end"),
        ("id BIGINTT", "found 'BIGINTT'"),
        ("id INT name STRING", "expected a comma or the end, found 'name'"),
        ("a ARRAY<INT", "expected '>', found the end"),
        ("a DECIMAL(40,2)", "DECIMAL(40,2)"),
        ("a INT NOT", "expected NULL after NOT"),
        ("a INT; drop", "can't read it from '; drop'"),
    ],
)
def test_what_cannot_be_read_is_named(text, said):
    with pytest.raises(ConfigError) as raised:
        parse_ddl(text)
    assert raised.value.option == "schema"
    assert said in str(raised.value)
