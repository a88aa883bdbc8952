"""msgspec builds what it knows of a type at its first use, and not safely in several threads: so one module makes all decoders."""

import ast
from pathlib import Path

import pytest

import kafka_actors
from kafka_actors.base import decoders

HOME = Path(kafka_actors.__file__).parent
BUILDS = {"decode", "convert", "Decoder"}


def calls_of_msgspec(tree):
    """Where a module has msgspec build a decoder: (line, what is called)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
            yield from ((node.lineno, name.name) for name in node.names if name.name in BUILDS)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            plain = called.endswith(".decode") and not any(k.arg == "type" for k in node.keywords)
            if called.startswith("msgspec.") and called.rpartition(".")[2] in BUILDS and not plain:
                yield node.lineno, called


def test_only_one_module_has_msgspec_make_decoders():
    found = {
        f"{path.relative_to(HOME)}:{line}": called
        for path in HOME.rglob("*.py")
        if path != HOME / "base/decoders.py"
        for line, called in calls_of_msgspec(ast.parse(path.read_text()))
    }
    assert found == {}


def test_one_name_has_the_errors_of_what_can_not_be_read():
    """msgspec before 0.23 raises `UnicodeDecodeError` for some bytes, so whoever names its own errors alone misses those."""
    found = [
        f"{path.relative_to(HOME)}:{node.lineno}"
        for path in HOME.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        if {"msgspec.DecodeError", "msgspec.MsgspecError"}
        & {ast.unparse(part) for part in ast.walk(node.type)}
    ]
    assert found == []


@pytest.mark.parametrize("text", [b"\xff", b'"\xff"', b'{"a": "\xc3', '"\udcff"'])
def test_bytes_and_text_that_can_not_be_read_raise_one_of_them(text):
    with pytest.raises(decoders.UNREADABLE):
        decoders.json(object).decode(text)


def test_the_rule_finds_each_way():
    text = (
        "from msgspec.json import Decoder\nmsgspec.convert(a, b)\nmsgspec.json.decode(a)\n"
        "msgspec.msgpack.decode(a, type=b)\nmsgspec.json.Decoder(a)\nmsgspec.json.Encoder()\n"
    )
    assert [line for line, _ in calls_of_msgspec(ast.parse(text))] == [1, 2, 4, 5]
