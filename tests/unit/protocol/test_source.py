"""Source of encoders and decoders, line by line."""

from __future__ import annotations

import pytest

from kafka_actors.protocol.source import FIXED, CodecSource, compiled_struct


def test_blocks_indent_their_lines_and_the_function_runs() -> None:
    source = CodecSource()
    with source.block("def double(values):"):
        source.line("found = []")
        with source.block("for value in values:"):
            source.line("found.append(2 * value)")
        source.line("return found")
    assert source.lines[2:4] == ["    for value in values:", "        found.append(2 * value)"]
    assert source.compile("double", "<test>")([1, 2]) == [2, 4]


def test_a_traceback_names_the_file_and_the_line() -> None:
    source = CodecSource()
    with source.block("def broken(value):"):
        source.line("return value.no_such_name")
    with pytest.raises(AttributeError) as raised:
        source.compile("broken", "<codec of Fetch>")(1)
    last = raised.traceback[-1]
    assert (str(last.frame.code.raw.co_filename), last.lineno + 1) == ("<codec of Fetch>", 2)


def test_literals_stand_in_the_source_and_all_else_in_the_namespace() -> None:
    source = CodecSource()
    assert [source.constant(value) for value in (None, 5, True, "a'b", b"\x00")] == [
        "None",
        "5",
        "True",
        '"a\'b"',
        "b'\\x00'",
    ]
    assert not source.namespace
    kept = {"a": 1}
    name = source.constant(kept, "table")
    assert source.namespace == {name: kept}
    assert source.constant(kept, "table") != name, "names are never used twice"


def test_values_of_fixed_size_that_follow_each_other_are_one_struct() -> None:
    source = CodecSource()
    source.run = [(FIXED["int16"], "a"), (FIXED["bool"], "b"), (FIXED["int64"], "c")]
    packer, names = source.packer()
    assert (packer.format, names) == (">h?q", ["a", "b", "c"])
    assert packer.size == 11, "without padding"
    assert source.run == []
    assert packer is compiled_struct(">h?q"), "equal layouts share one"
