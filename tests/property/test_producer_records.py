"""The kernel's encode side against its plain-Python twin, and against the decoder."""

import numpy as np
import pyarrow as pa
import pytest
from fakes.records import MURMUR2_OF_JAVA
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors import records
from kafka_actors.records import _reference
from kafka_actors.records.encode import row_columns

compiled = pytest.importorskip("kafka_actors.records._kernel")

BYTES = st.none() | st.binary(max_size=40) | st.integers(60, 70).map(bytes) | st.just(b"x" * 9000)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)}),
    max_size=3,
)
MILLIS = st.none() | st.integers(-(2**45), 2**45)
ROWS = st.lists(st.tuples(BYTES, BYTES, HEADERS, MILLIS), max_size=20)
KINDS = st.sampled_from([pa.binary(), pa.large_binary()])
NOW = 1_700_000_000_123


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Columns of any accepted type, some missing, and a slice of them."""
    rows = draw(ROWS)
    columns = {
        "key": pa.array([r[0] for r in rows], draw(KINDS)),
        "value": pa.array([r[1] for r in rows], draw(KINDS)),
        "headers": pa.array([r[2] for r in rows], records.SCHEMA.field("headers").type),
        "timestamp": pa.array([r[3] for r in rows], draw(st.sampled_from([pa.int64(), pa.timestamp("ms")]))),
    }
    for name in draw(st.sets(st.sampled_from(["key", "headers", "timestamp"]))):
        del columns[name]
    batch = pa.record_batch(columns)
    lo = draw(st.integers(0, len(rows)))
    return batch.slice(lo, draw(st.integers(0, len(rows) - lo)))


def both(batch):
    columns = row_columns(batch, NOW)
    return compiled.rows(columns, NOW), _reference.rows(columns, NOW)


@given(batches(), st.integers(1, 5), st.integers(61, 10_000), st.randoms(use_true_random=False))
def test_kernel_and_twin_write_the_same_bytes_in_the_same_batches(batch, capacity, limit, rand):
    order = np.array(rand.sample(range(batch.num_rows), batch.num_rows), np.int32)
    written = []
    for kernel, rows in zip((compiled, _reference), both(batch), strict=True):
        at, out = 0, []
        while at < len(order):
            writer = kernel.writer(capacity)
            at = writer.append(rows, order, at, len(order), limit)
            out.append((bytes(writer.seal(7, 3, 11)), writer.count, writer.used))
        written.append(out)
    assert written[0] == written[1]
    assert all(used <= limit or count == 1 for _, count, used in written[0])


@given(batches())
def test_what_is_written_is_what_is_read(batch):
    rows, _ = both(batch)
    writer = compiled.writer(100)
    writer.append(rows, None, 0, batch.num_rows, 2**31 - 1)
    read = records.decode(writer.seal(-1, -1, -1), topic="t", partition=0)
    nothing = [None] * batch.num_rows
    for name in ("key", "value"):
        assert read.column(name).to_pylist() == (
            batch.column(name).to_pylist() if name in batch.schema.names else nothing
        )
    given_headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else nothing
    assert read.column("headers").to_pylist() == [h or None for h in given_headers]
    stamps = nothing
    if "timestamp" in batch.schema.names:
        stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    millis = [t // 1000 for t in read.column("timestamp").cast(pa.int64()).to_pylist()]
    assert millis == [NOW if t is None else t for t in stamps]


@given(ROWS)
def test_kernel_and_twin_append_single_records_alike(rows):
    seen = []
    for kernel in (compiled, _reference):
        writer = kernel.writer(1)
        took = [
            writer.append_one(
                k, v, h and [(x["key"].encode(), x["value"]) for x in h], NOW if t is None else t, 20_000
            )
            for k, v, h, t in rows
        ]
        seen.append((took, bytes(writer.seal(1, 2, 3))))
    assert seen[0] == seen[1]


@given(batches(), st.integers(1, 7), st.integers(1, 500))
def test_kernel_and_twin_spread_rows_alike(batch, partitions, budget):
    seen = []
    for kernel, rows in zip((compiled, _reference), both(batch), strict=True):
        chosen = np.full(batch.num_rows, -9, np.int32)
        facts = [rows.largest()[1], rows.spread(chosen, partitions)]
        at = 0
        while at < batch.num_rows:
            at, spent = rows.stick(chosen, at, at % partitions, budget)
            facts += [at, spent]
        order, bounds = np.empty(batch.num_rows, np.int32), np.empty(partitions + 1, np.int64)
        kernel.group(chosen, order, bounds)
        facts += [chosen.tolist(), order.tolist(), bounds.tolist()]
        seen.append(facts)
        for p in range(partitions):
            members = order[bounds[p] : bounds[p + 1]].tolist()
            assert members == sorted(i for i, c in enumerate(chosen) if c == p)
    assert seen[0] == seen[1]


@given(st.binary(max_size=30))
def test_kernel_and_twin_hash_alike(key):
    assert compiled.murmur2(key) == _reference.murmur2(key)


@pytest.mark.parametrize("kernel", [compiled, _reference])
@pytest.mark.parametrize(("key", "hash_"), MURMUR2_OF_JAVA)
def test_murmur2_is_javas(kernel, key, hash_):
    assert kernel.murmur2(key) == hash_ & 0x7FFFFFFF
