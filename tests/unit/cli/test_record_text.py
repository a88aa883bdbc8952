"""Records as text: format strings with kcat's tokens, JSON lines out and in."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from fakes.batches import records

from kafka_actors.cli.record_text import NULL, RecordFormat, batch_of, json_lines, literal, unescaped
from kafka_actors.errors import UsageError

BATCH = records(
    [b"one", None, b"\xff"],
    partition=3,
    first=7,
    keys=[b"k", b"", None],
    headers=[[("a", b"1"), ("b", None)], None, []],
    timestamp_ms=1000,
)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (r"%s\n", b"one\n\n\xff\n"),
        (r"%t %p %o\n", b"orders 3 7\norders 3 8\norders 3 9\n"),
        (r"%k=%s;", b"k=one;=;=\xff;"),
        (r"%K,%S ", b"1,3 0,-1 -1,1 "),
        (r"%T ", b"1000 1001 1002 "),
        (r"[%h]", b"[a=1,b=NULL][][]"),
        (r"%R", b"\0\0\0\x03\xff\xff\xff\xff\0\0\0\x01"),
        (r"100%%\t", b"100%\t" * 3),
        (r"%%%p%%", b"%3%" * 3),
        ("ä", "ä".encode() * 3),
        ("", b""),
    ],
)
def test_tokens_are_kcats(text, made):
    assert RecordFormat(text).render(BATCH) == made


def test_nulls_have_a_text_of_their_own_and_empty_values_do_not():
    assert RecordFormat(r"%k:%s ", NULL).render(BATCH) == b"k:one :NULL NULL:\xff "


def test_a_slice_is_rendered_as_the_records_that_it_has():
    assert RecordFormat("%o%s;").render(BATCH.slice(1, 1)) == b"8;"


def test_many_records_are_rendered_in_order():
    values: list[bytes | None] = [b"%d" % n for n in range(5000)]
    assert RecordFormat("%s ").render(records(values)) == b"".join(value + b" " for value in values if value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%x", "%x is none of %t, %p, %o"),
        ("50%", "ends with a lone %"),
        ("a\\", "ends with a lone backslash"),
    ],
)
def test_a_wrong_format_is_named(text, says):
    with pytest.raises(UsageError, match=f"--format .*{says}"):
        RecordFormat(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (r"\t\n\r", b"\t\n\r"),
        (r"\x54!\x45\x9", b"T!E\t"),
        (r"\033[0m", b"\x1b[0m"),
        (r"\x00", b"\0"),
        (r"\\n", b"\\n"),
        (r"\;", b";"),
        ("::", b"::"),
        ("\udcff", b"\xff"),
    ],
)
def test_escapes_are_kcats(text, made):
    assert unescaped(text, "-K") == made


def test_an_octal_number_above_a_byte_is_refused():
    with pytest.raises(UsageError, match=r"-K .*777 is more than a byte"):
        unescaped(r"\777", "-K")


def test_a_delimiter_may_have_a_percent_sign():
    assert RecordFormat(f"%k{literal('%s')}%s ").render(BATCH.slice(0, 1)) == b"k%sone "


# ---------------------------------------------------------------- JSON


def test_bytes_that_are_no_text_stand_as_base64_under_another_name():
    lines = [json.loads(line) for line in json_lines(BATCH).splitlines()]
    common = {"topic": "orders", "partition": 3}
    assert lines == [
        {
            **common,
            "offset": 7,
            "timestamp": 1000,
            "key": "k",
            "value": "one",
            "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
        },
        {**common, "offset": 8, "timestamp": 1001, "key": "", "value": None, "headers": []},
        {
            **common,
            "offset": 9,
            "timestamp": 1002,
            "key": None,
            "value_base64": base64.b64encode(b"\xff").decode(),
            "headers": [],
        },
    ]


def test_what_was_written_is_read_as_it_was():
    batch = records(
        ["ü\n".encode(), None, b"\xfe", b""],
        keys=[b"\xff", None, b"", b"k"],
        headers=[[("h", b"\xff")], None, [("h", None), ("i", b"x")], None],
    )
    lines = list(enumerate(json_lines(batch).splitlines(), 1))
    numbers, read = batch_of(lines, lambda number, reason: pytest.fail(reason))
    assert numbers == [1, 2, 3, 4]
    for name in ("topic", "partition", "key", "value"):
        assert read.column(name).to_pylist() == batch.column(name).to_pylist()
    assert [row or None for row in read.column("headers").to_pylist()] == batch.column("headers").to_pylist()
    assert read.column("timestamp").to_pylist() == [1_700_000_000_123 + n for n in range(4)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nonsense", "malformed"),
        (b"[]", "array"),
        (b'{"valu": "x"}', "unknown field `valu`"),
        (b'{"value": 3}', "`$.value`"),
        (b'{"key": "k"}', "has neither value nor value_base64: write null for a tombstone"),
        (b'{"value": "a", "value_base64": "YQ=="}', "has both value and value_base64"),
        (b'{"value": "a", "key": "a", "key_base64": "YQ=="}', "has both key and key_base64"),
        (b'{"value_base64": "?"}', "value_base64"),
        (b'{"value": "a", "partition": -1}', "partition"),
        (b'{"value": "a", "partition": 2147483648}', "partition"),
        (b'{"value": "a", "timestamp": 9223372036854775808}', "timestamp"),
        (b'{"value": "\xff"}', "UTF-8"),
        (b'{"value": "a", "headers": [{"value": "x"}]}', "key"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_the_others_are_read(line, says):
    wrong: dict[int, str] = {}
    numbers, batch = batch_of([(4, line), (5, b'{"value": "good"}')], wrong.__setitem__)
    assert (numbers, batch.column("value").to_pylist()) == ([5], [b"good"])
    assert list(wrong) == [4]
    assert says.lower() in wrong[4].lower()


def test_what_a_line_leaves_out_is_null():
    _, batch = batch_of([(1, b'{"value": null}')], lambda number, reason: pytest.fail(reason))
    assert batch.to_pylist() == [
        {"topic": None, "partition": None, "timestamp": None, "key": None, "value": None, "headers": None}
    ]
    assert batch.schema.field("value").type == pa.binary()
