"""Which kernel is in use, that its twin is one, and what it decodes in one step."""

import mmap
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.records import _reference
from kafka_actors.records.batch import (
    LOG_APPEND_TIME,
    MAX_MILLIS,
    TABLE_WIDTH,
    TRANSACTIONAL,
    ColumnField,
    Fill,
    Kernel,
    new_table,
)
from kafka_actors.records.record import write_varint


def test_the_kernel_in_use_is_named():
    compiled = "kafka_actors.records._kernel" in sys.modules
    assert ("cython" if compiled else "python") == records.KERNEL


def test_the_twin_has_every_function_of_the_kernel():
    for name in vars(Kernel):
        if not name.startswith("_"):
            assert callable(getattr(_reference, name))
    assert get_type_hints(records.Chunk)["next_offset"] is int


def test_the_table_is_as_wide_as_its_fields():
    assert len(ColumnField) == TABLE_WIDTH
    assert list(ColumnField) == list(range(TABLE_WIDTH))


# ---------------------------------------------------------------- small parts


def encoded(values=(b"value", None), offset=7, **options):
    """A batch of records with these values and keys that are their numbers."""
    keys = [b"%d" % n if n % 2 else None for n in range(len(values))]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    headers = options.pop("headers", None)
    if headers is not None:
        columns["headers"] = pa.array([headers] * len(values), records.SCHEMA.field("headers").type)
    return records.encode(pa.record_batch(columns), base_offset=offset, **options)


def small(*parts, next_offset=0, rows=1000, size=1 << 20, without=0):
    compiled = pytest.importorskip("kafka_actors.records._kernel")
    return compiled.small(parts, next_offset, rows, size, without, b"orders", 3)


GOOD, LATER = encoded(), encoded((b"last",), 9)


def test_a_small_part_is_one_batch_in_one_step():
    data = encoded() + encoded((b"", b"x" * 100, None), 9, timestamp_type="log_append_time")
    batch, next_offset, leader_epoch = small(data)
    batch.validate(full=True)
    assert (next_offset, leader_epoch) == (12, -1)
    assert batch.schema.equals(records.SCHEMA)
    assert batch.column("key").to_pylist() == [None, b"1", None, b"1", None]
    assert batch.column("value").to_pylist() == [b"value", None, b"", b"x" * 100, None]
    assert batch.column("topic").to_pylist() == ["orders"] * 5
    assert batch.column("partition").to_pylist() == [3] * 5
    assert batch.column("offset").to_pylist() == [7, 8, 9, 10, 11]
    assert batch.column("timestampType").to_pylist() == [0, 0, 1, 1, 1]
    assert batch.column("headers").to_pylist() == [None] * 5
    assert [column.null_count for column in batch.columns] == [3, 2, 0, 0, 0, 0, 0, 5]


def test_its_rows_are_used_as_those_of_any_batch():
    batch, *_ = small(encoded([b"%d" % n for n in range(20)]))
    other = pickle.loads(pickle.dumps(batch.slice(3, 5)))
    assert other.column("value").to_pylist() == [b"3", b"4", b"5", b"6", b"7"]
    table = pa.Table.from_batches([batch, other]).sort_by("offset")
    assert table.column("offset").to_pylist()[:3] == [7, 8, 9]
    assert table.column("headers").null_count == 25


def test_parts_that_follow_each_other_are_one_batch():
    batch, next_offset, _ = small(GOOD + LATER[:-1], LATER, encoded((b"",), 20))
    assert batch.column("offset").to_pylist() == [7, 8, 9, 20]
    assert batch.column("value").to_pylist() == [b"value", None, b"last", b""]
    assert next_offset == 21


def test_what_is_before_the_wanted_offset_or_cut_off_at_the_end_is_left_out():
    batch, next_offset, _ = small(encoded() + encoded((b"last",), 9)[:-1], next_offset=8)
    assert batch.column("offset").to_pylist() == [8]
    assert next_offset == 9


OTHERS = {
    "nothing": ([b""], {}),
    "no part": ([], {}),
    "large": ([encoded((b"x" * 5000,))], {}),
    "large together": (
        [encoded((b"x" * 2000,)), encoded((b"x" * 2000,), 9), encoded((b"x" * 2000,), 10)],
        {},
    ),
    "compressed": ([encoded((b"x" * 100,) * 5, codec="zstd")], {}),
    "headers": ([encoded(headers=[{"key": "k", "value": b"v"}])], {}),
    "broken": ([GOOD[:-1] + b"!"], {}),
    "broken behind a good one": ([GOOD + LATER[:-1] + b"!"], {}),
    "broken in the second part": ([GOOD, LATER[:-1] + b"!"], {}),
    "no format of Kafka's": ([GOOD + b"\xff" * 30], {}),
    "two leaders": ([encoded(partition_leader_epoch=1) + encoded(offset=9, partition_leader_epoch=2)], {}),
    "many batches": ([b"".join(encoded((b"",), n) for n in range(9))], {}),
    "many parts": ([encoded((b"",), n) for n in range(9)], {}),
    "more rows than a chunk": ([GOOD], {"rows": 1}),
    "more bytes than a chunk": ([GOOD], {"size": 50}),
    "no rows from there on": ([GOOD], {"next_offset": 9}),
    "transactional": ([encoded(producer_id=1, is_transactional=True)], {"without": TRANSACTIONAL}),
}


@pytest.mark.parametrize("why", OTHERS)
def test_every_other_part_is_left_to_the_general_way(why):
    parts, limits = OTHERS[why]
    assert small(*parts, **limits) is None


def test_memory_of_small_batches_is_given_back():
    data = encoded((b"x" * 1000,) * 3)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(1000):
        small(data)
    before = resident()
    for n in range(30_000):
        small(data if n % 2 else data[:-1])
    assert resident() - before < 20 << 20


REFUSED = """
import pyarrow as pa
from kafka_actors import records
from kafka_actors.records import _kernel

data = records.encode(pa.record_batch({"value": pa.array([b"v"], pa.binary())}))
right = _kernel.SCHEMA
for wrong in (pa.schema([("one", pa.int64())]), pa.schema([right.field(0)] * len(right))):
    _kernel.SCHEMA = wrong
    for _ in range(100):
        try:
            _kernel.small((data,), 0, 10, 1 << 20, 0, b"t", 0)
        except pa.ArrowInvalid:
            continue
        raise AssertionError("imported as other columns than it has")
"""


def test_a_small_batch_that_arrow_refuses_is_released_once():
    """In a process whose C library overwrites what is freed."""
    pytest.importorskip("kafka_actors.records._kernel")
    run = subprocess.run(
        [sys.executable, "-c", REFUSED], env={**os.environ, "MALLOC_PERTURB_": "165"}, check=False
    )
    assert run.returncode == 0


# ---------------------------------------------------------------- the longest values


@pytest.mark.parametrize("field", ["key", "value"])
def test_room_is_made_for_the_longest_value(field):
    """The columns are not filled: a timestamp that is refused behind the reservation costs no memory."""
    compiled = pytest.importorskip("kafka_actors.records._kernel")
    longest = 2**31 - 32
    body, front = bytearray(3), bytearray()  # attributes, and the deltas of timestamp and offset
    if field == "value":
        write_varint(body, -1)
    write_varint(body, longest)
    behind = b"\1\0" if field == "key" else b"\0"  # the value is null, there are no headers
    write_varint(front, len(body) + longest + len(behind))
    front += body
    size = len(front) + longest + len(behind)
    table = new_table(1)
    row = table[0]
    row[ColumnField.END], row[ColumnField.COUNT], row[ColumnField.LAST_DELTA] = size, 1, -1
    row[ColumnField.MAGIC] = 2
    row[ColumnField.TIMESTAMP_TYPE], row[ColumnField.MAX_TIMESTAMP] = LOG_APPEND_TIME, MAX_MILLIS + 1
    columns = compiled.columns(0, 10, 1 << 20, 1, 1000)
    before = pa.total_allocated_bytes()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE) as data:
        data[: len(front)] = front
        data[size - len(behind) :] = behind
        assert columns.fill(data, b"", table, 0, 1) == (0, Fill.BAD_TIMESTAMP)
    assert pa.total_allocated_bytes() - before > longest // 2
