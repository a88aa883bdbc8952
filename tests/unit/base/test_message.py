"""Messages as a view on batches."""

import random

import pyarrow as pa
import pytest

from kafka_actors.base import message
from kafka_actors.base.batches import numbers
from kafka_actors.base.message import BLOCK, BY_THEMSELVES, KEPT, Message, MessageBlocks, messages_of
from kafka_actors.records import SCHEMA


def batch_of(rows):
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def row(offset, key=b"k", value=b"v", headers=None, timestamp=1_500):
    return {
        "key": key,
        "value": value,
        "topic": "t",
        "partition": 3,
        "offset": offset,
        "timestamp": timestamp * 1000,
        "timestampType": 1,
        "headers": headers,
    }


def test_null_and_empty_stay_apart():
    rows = [
        row(0, None, b""),
        row(1, b"", None),
        row(2, headers=[{"key": "h", "value": None}, {"key": "h", "value": b""}]),
    ]
    messages = list(messages_of(batch_of(rows)))
    assert [(m.key, m.value) for m in messages] == [(None, b""), (b"", None), (b"k", b"v")]
    assert [m.headers for m in messages] == [(), (), (("h", None), ("h", b""))]
    assert messages[0] == Message("t", 3, 0, 1500, 1, None, b"", ())


def test_a_missing_timestamp_stays_minus_one():
    assert next(messages_of(batch_of([row(0, timestamp=-1)]))).timestamp == -1


@pytest.mark.parametrize("start", [0, 1, 700, BLOCK, BLOCK + 1, 2500])
def test_messages_of_a_slice_are_those_of_its_rows(start):
    rnd = random.Random(7)
    rows = [
        row(
            i,
            None if rnd.random() < 0.3 else bytes([i % 256]) * (i % 5),
            None if rnd.random() < 0.1 else b"%d" % i,
        )
        for i in range(2600)
    ]
    sliced = batch_of([row(-1), *rows]).slice(1)
    got = list(messages_of(sliced, start))
    assert [(m.offset, m.key, m.value) for m in got] == [
        (r["offset"], r["key"], r["value"]) for r in rows[start:]
    ]


@pytest.fixture
def made(monkeypatch):
    """The sizes of the blocks that are made."""
    sizes = []

    def counted(batch, make=message._block):
        sizes.append(batch.num_rows)
        return make(batch)

    monkeypatch.setattr(message, "_block", counted)
    return sizes


def checked(batches, calls):
    """Asks for rows of batches call by call, and checks what comes."""
    blocks = MessageBlocks()
    for number, rows in calls:
        assert [m.offset for m in blocks.of(batches[number], rows)] == [10_000 * number + row for row in rows]


def batches_of(count, rows):
    return [batch_of([row(10_000 * number + i) for i in range(rows)]) for number in range(count)]


@pytest.mark.parametrize("at_once", [1, 7, 64, 3000])
def test_rows_in_their_order_are_made_in_blocks(made, at_once):
    calls = [(n, list(range(i, min(i + at_once, 2600)))) for n in range(2) for i in range(0, 2600, at_once)]
    checked(batches_of(2, 2600), calls)
    assert sum(size > 1 for size in made) == 6
    assert sum(size == 1 for size in made) < 6 * BY_THEMSELVES


def test_rows_of_a_few_batches_in_turn_are_made_in_blocks(made):
    checked(batches_of(KEPT, BLOCK), [(n, [i]) for i in range(BLOCK) for n in range(KEPT)])
    assert sum(size > 1 for size in made) == KEPT


def test_rows_in_no_order_cost_no_more_than_twice_what_they_do_one_by_one(made):
    rnd = random.Random(7)
    calls = [
        (rnd.randrange(2 * KEPT), sorted(rnd.sample(range(3000), rnd.randrange(1, 4)))) for _ in range(1000)
    ]
    checked(batches_of(2 * KEPT, 3000), calls)
    cost = sum(BY_THEMSELVES if size > 1 else 1 for size in made)
    assert cost <= 2 * sum(len(rows) for _, rows in calls)


def test_no_more_than_the_last_blocks_are_kept(made):
    blocks = MessageBlocks()
    for batch in batches_of(3 * KEPT, BLOCK):
        blocks.of(batch, list(range(BLOCK)))
    assert len(blocks._kept) == KEPT


def test_a_batch_without_rows_has_no_messages():
    assert list(messages_of(batch_of([]))) == []


def test_a_column_that_is_null_throughout_is_none():
    assert [m.value for m in messages_of(batch_of([row(0, value=None), row(1, value=None)]))] == [None, None]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.timestamp("us", tz="UTC")])
def test_numbers_are_those_of_a_slice(kind):
    column = pa.array(range(10), kind)
    assert numbers(column).tolist() == list(range(10))
    assert numbers(column.slice(3, 4)).tolist() == [3, 4, 5, 6]
    assert numbers(pa.nulls(0, kind)).tolist() == []
