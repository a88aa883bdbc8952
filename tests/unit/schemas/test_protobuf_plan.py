"""Plans in flat form: columns in the order of the Arrow type, enums once for their names, and reasons with their field."""

import pytest

from kafka_actors.schemas.protobuf_plan import (
    CLOSED,
    LIST,
    MAP,
    NULLABLE,
    REQUIRED,
    WIDTH,
    ProtobufCode,
    Wire,
    plan,
)
from kafka_actors.schemas.protobuf_schema import Files, compiled

TEXT = """syntax = "proto2"; enum E { A = 1; B = 2; }
message M {
  required int32 id = 9; optional E kind = 1; repeated Inner many = 2; map<string, Inner> named = 3; oneof o { int32 x = 4; bytes y = 5; }
  message Inner { optional string s = 1; repeated sint32 z = 2; }
}"""


@pytest.fixture(scope="module")
def made():
    descriptors = compiled(TEXT)
    return plan(Files(descriptors).message("M"), descriptors, "name")


def row(made, path):
    at = made.paths.index(path)
    return made.fields[WIDTH * at : WIDTH * (at + 1)].tolist()


def test_each_field_has_the_number_of_its_column(made):
    columns = {path: row(made, path)[4] for path in made.paths}
    assert columns == {
        "id": 1, "kind": 2, "many": 3, "many.s": 5, "many.z": 6, "named": 8, "named.key": 9, "named.value": 10,
        "named.value.s": 11, "named.value.z": 12, "x": 14, "y": 15,
    }  # fmt: skip


def test_fields_say_how_they_come(made):
    assert row(made, "id")[:4] == [9, Wire.VARINT, 0, REQUIRED]
    assert row(made, "kind")[:4] == [1, Wire.ENUM, 0, NULLABLE | CLOSED]
    assert row(made, "many")[1:3] == [Wire.MESSAGE, LIST]
    assert row(made, "many.z")[1:3] == [Wire.ZIGZAG, LIST]
    assert row(made, "named")[2] == MAP
    assert row(made, "x")[5] == row(made, "y")[5] >= 0
    assert row(made, "kind")[5] == -1
    assert made.symbols == [[(1, b"A"), (2, b"B")]]


@pytest.mark.parametrize("code", list(ProtobufCode), ids=lambda code: code.name)
def test_each_reason_is_a_sentence_with_its_field(made, code):
    assert made.reason(code, made.paths.index("many.s")).startswith("many.s: ")
    assert not made.reason(code, -1).startswith("many")
