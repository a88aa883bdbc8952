"""Programs in flat form: each step once, however often it is reached, and reasons that name the path."""

import pyarrow as pa
import pytest

from kafka_actors.schemas.avro_program import WIDTH, Code, Op, Step, count_columns, flat


def test_a_step_that_is_reached_twice_stands_once():
    inner = Step(Op.INT)
    loop = Step(Op.UNION, children=[Step(Op.NULL), inner])
    loop.children.append(loop)
    made = flat(pa.schema([]), Step(Op.RECORD, 0, children=[inner, loop, inner]))
    rows = [tuple(made.steps[at : at + WIDTH]) for at in range(0, len(made.steps), WIDTH)]
    assert [row[0] for row in rows] == [Op.RECORD, Op.INT, Op.UNION, Op.NULL]
    first, count = rows[0][4:]
    assert made.children[first : first + count].tolist() == [1, 2, 1]
    first, count = rows[2][4:]
    assert made.children[first : first + count].tolist() == [3, 1, 2]


def test_texts_are_those_of_their_step():
    symbols = Step(Op.ENUM, 1, texts=[b"A", None])
    constant = Step(Op.CONSTANT, children=[Step(Op.INT, 2)], texts=[b"\2"])
    made = flat(pa.schema([]), Step(Op.RECORD, 0, children=[symbols, constant]))
    assert made.texts == [b"A", None, b"\2"]
    assert made.steps[WIDTH + 4 : WIDTH + 6].tolist() == [0, 2]
    assert made.steps[2 * WIDTH + 3] == 2


@pytest.mark.parametrize("code", list(Code), ids=lambda code: code.name)
def test_each_reason_is_a_sentence_with_its_path(code):
    made = flat(pa.schema([]), Step(Op.FAIL, path="a.b", reason="it is refused"))
    text = made.reason(code, 0, 77)
    assert text.startswith("a.b: ")
    assert "{" not in text


def test_columns_are_counted_with_those_inside():
    kind = pa.struct(
        [("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.struct([("c", pa.int8())])))]
    )
    assert count_columns(kind) == 1 + 2 + (1 + 1 + 2)
