"""The compiled kernel against its plain-Python twin, on good, cut, mutated and random bytes."""

import gzip
import random
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import cramjam
import crc32c
import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_actors import records
from kafka_actors.errors import CorruptRecordBatchError, RecordError, UnknownMagicError
from kafka_actors.records import _reference
from kafka_actors.records.batch import CONTROL, HEADER_SIZE

compiled = pytest.importorskip("kafka_actors.records._kernel")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BYTES = st.none() | st.binary(max_size=40) | st.integers(60, 70).map(bytes) | st.just(b"x" * 9000)
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), min_size=1, max_size=3
)
MICROS = st.integers(-(2**62), 2**62).map(lambda us: us // 1000 * 1000)
MILLIS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2).map(lambda off: off + 2**63 // 1000)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.none() | HEADERS, MICROS, st.integers(1, 100)), max_size=12)
LIMITS = st.builds(
    records.Limits,
    chunk_rows=st.sampled_from([1, 2, 7, 65536]),
    chunk_bytes=st.sampled_from([1, 100, 1 << 24]),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A few encoded batches one behind the other, with gaps in and between them."""
    out, base = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        rows, offsets, offset = draw(ROWS), [], base
        for row in rows:
            offsets.append(offset)
            offset += row[4]
        batch = pa.record_batch(
            {
                "key": pa.array([r[0] for r in rows], pa.binary()),
                "value": pa.array([r[1] for r in rows], pa.binary()),
                "headers": pa.array([r[2] for r in rows], records.SCHEMA.field("headers").type),
                "timestamp": pa.array([r[3] for r in rows], pa.int64()).cast(pa.timestamp("us", "UTC")),
                "offset": pa.array(offsets, pa.int64()),
            }
        )
        transactional = draw(st.booleans())
        out += records.encode(
            batch,
            codec=draw(st.sampled_from(CODECS)),
            base_offset=base,
            last_offset=offset + draw(st.integers(0, 50)),
            timestamp_type=draw(st.sampled_from(["create_time", "log_append_time"])),
            partition_leader_epoch=draw(st.integers(-1, 5)),
            producer_id=draw(st.integers(0, 2)) if transactional else -1,
            is_transactional=transactional,
            is_control=transactional and not rows,
        )
        base = offset + 51 + draw(st.integers(0, 1000))
    return out


def outcome(data: bytes, used: object, **options: object) -> tuple:
    """All that a caller can see of a Decoder: chunks, and the error at the end."""
    decoder = records.Decoder("t", 3, kernel=used, **options)
    seen: list[tuple] = []
    try:
        for chunk in decoder.feed(data):
            chunk.batch.validate(full=True)
            seen.append((comparable(chunk.batch), chunk.next_offset, chunk.leader_epoch))
    except RecordError as error:
        seen.append((type(error), error.offset, error.next_offset, error.kind, str(error)))
    return tuple(seen), decoder.next_offset


def comparable(batch: pa.RecordBatch) -> tuple:
    at = batch.schema.get_field_index("timestamp")
    plain = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    return tuple(tuple(column) for column in plain.to_pydict().values())


@given(st.binary(max_size=60), st.sampled_from(["lz4", "zstd"]), st.data())
def test_walks_over_frames_agree(tail, codec, choice):
    """Good frames, mutated and cut, with anything behind them."""
    text = choice.draw(st.binary(max_size=200).map(lambda part: part * 30))
    if codec == "zstd":
        sums, sizes = choice.draw(st.booleans()), choice.draw(st.booleans())
        pack = zstandard.ZstdCompressor(write_checksum=sums, write_content_size=sizes).compress
        frame = pack(text) + choice.draw(st.sampled_from([b"", b"\x51\x2a\x4d\x18\1\0\0\0x", pack(b"more")]))
    else:
        packer = cramjam.lz4.Compressor(block_linked=choice.draw(st.booleans()))
        packer.compress(text)
        frame = bytes(packer.finish())
    frame = bytearray(
        frame[: choice.draw(st.sampled_from([len(frame), choice.draw(st.integers(0, len(frame)))]))]
    )
    for _ in range(choice.draw(st.integers(0, 2)) if frame else 0):
        frame[choice.draw(st.integers(0, len(frame) - 1))] = choice.draw(st.integers(0, 255))
    data = bytes(frame) + tail
    assert walked(compiled, codec, data) == walked(_reference, codec, data)


def walked(kernel: Any, codec: str, data: bytes) -> object:
    try:
        return kernel.lz4_blocks(data) if codec == "lz4" else kernel.zstd_end(data)
    except ValueError as error:
        return str(error)


@given(st.binary(max_size=200), st.integers(1, 300))
def test_xxh32_agrees(data, times):
    assert compiled.xxh32(data * times) == _reference.xxh32(data * times)


@given(st.binary(max_size=300), st.integers(0, 20), st.integers(0, 320))
def test_walks_over_old_messages_agree(data, pos, end):
    assert compiled.messages(data, pos, end) == _reference.messages(data, pos, end)


general = SimpleNamespace(**{**vars(compiled), "small": _reference.small})
"""The compiled kernel, that decodes small parts as it does large ones."""


def agree(data: bytes, **options: object) -> tuple:
    ours, twin = outcome(data, compiled, **options), outcome(data, _reference, **options)
    assert ours == twin
    assert outcome(data, general, **options) == twin
    assert compiled.next_offset(data) == _reference.next_offset(data)
    return ours


def resealed(data: bytes) -> bytes:
    """With right CRCs, so that a mutation is seen by what lies behind the check."""
    out, pos = bytearray(data), 0
    while len(out) - pos >= HEADER_SIZE:
        (length,) = struct.unpack_from(">i", out, pos + 8)
        end = pos + 12 + length
        if length < 49 or end > len(out):
            break
        struct.pack_into(">I", out, pos + 17, crc32c.crc32c(memoryview(out)[pos + 21 : end]))
        pos = end
    return bytes(out)


ISOLATION = st.sampled_from(["read_committed", "read_uncommitted"])
ABORTED = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**40)), max_size=3)


@given(batches(), LIMITS, ISOLATION, ABORTED, st.integers(0, 2**40))
def test_kernel_and_twin_agree_on_good_batches(data, limits, level, aborted, fetch_offset):
    agree(data, limits=limits, isolation_level=level, aborted=aborted, fetch_offset=fetch_offset)


@given(batches(), LIMITS, MILLIS, st.sampled_from([27, 35]))
def test_kernel_and_twin_agree_on_any_timestamp(data, limits, millis, at):
    moved = bytearray(data)
    struct.pack_into(">q", moved, at, millis)  # the base, or the largest
    agree(resealed(bytes(moved)), limits=limits)


@given(batches(), LIMITS)
def test_chunks_are_bounded_and_lose_nothing(data, limits):
    whole = records.decode(data, topic="t", partition=3)
    chunks = list(records.Decoder("t", 3, limits=limits).feed(data))
    assert pa.Table.from_batches([c.batch for c in chunks], records.SCHEMA).equals(
        pa.Table.from_batches([whole], records.SCHEMA)
    )
    for chunk in chunks:
        assert chunk.batch.num_rows <= limits.chunk_rows
        size = sum(len(v or b"") for v in chunk.batch.column("value").to_pylist())
        assert size <= limits.chunk_bytes or chunk.batch.num_rows == 1
    assert sorted(c.next_offset for c in chunks) == [c.next_offset for c in chunks]


@given(st.lists(batches(), min_size=2, max_size=4), LIMITS)
def test_parts_are_read_as_their_bytes_in_a_row(parts, limits):
    def read(*data, kernel=compiled):
        chunks = list(records.Decoder("t", 3, limits=limits, kernel=kernel).feed(*data))
        return pa.Table.from_batches([c.batch for c in chunks], records.SCHEMA), chunks[-1:]

    (apart, last), (whole, end) = read(*parts), read(b"".join(parts))
    assert apart.equals(whole)
    assert [c.next_offset for c in last] == [c.next_offset for c in end]
    assert read(*parts, kernel=general)[0].equals(whole)


@given(batches(), st.data())
def test_a_cut_anywhere_is_a_partial_batch(data, choice):
    """The end of a fetch may cut a batch; what is whole before it is read and nothing is said about the rest."""
    cut = data[: choice.draw(st.integers(0, len(data)))]
    seen, _ = agree(cut)
    full, _ = outcome(data, compiled)
    rows = [r for chunk in seen for r in zip(*chunk[0], strict=True)]
    assert rows == [r for chunk in full for r in zip(*chunk[0], strict=True)][: len(rows)]


@settings(max_examples=300)
@given(batches(), LIMITS, st.data())
def test_mutated_batches_are_errors_of_ours_and_the_same_in_both(data, limits, choice):
    mutated = bytearray(data)
    for _ in range(choice.draw(st.integers(1, 4))):
        at = choice.draw(st.integers(0, len(mutated) - 1))
        mutated[at] = choice.draw(st.integers(0, 255))
    agree(bytes(mutated), limits=limits)
    agree(resealed(bytes(mutated)), limits=limits, isolation_level="read_committed", aborted=[(1, 0)])


@settings(max_examples=300)
@given(st.lists(BYTES, min_size=1, max_size=5), st.data())
def test_mutated_records_behind_a_right_crc(values, choice):
    """Plain batches, mutated in their records: every check of the record loop is met."""
    batch = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(
                [[{"key": "k", "value": v}] for v in values], records.SCHEMA.field("headers").type
            ),
        }
    )
    data = bytearray(records.encode(batch))
    for _ in range(choice.draw(st.integers(1, 3))):
        at = choice.draw(st.integers(57, len(data) - 1))
        data[at] = choice.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    agree(resealed(bytes(data)), limits=choice.draw(LIMITS))


@st.composite
def old_messages(draw: st.DrawFn) -> bytes:
    """Messages of formats v0 and v1, plain and inside of compressed ones."""
    magic, inner = draw(st.integers(0, 1)), b""
    rows = draw(st.lists(st.tuples(BYTES, BYTES, st.integers(-(2**63), 2**63 - 1) | st.just(0)), max_size=5))
    base = draw(st.integers(0, 1000))
    for number, row in enumerate(rows):
        inner += old_message(number if magic else base + number, magic, 0, *row)
    if not rows or draw(st.booleans()):
        return inner
    attributes = 1 | draw(st.sampled_from([0, 8]))
    return old_message(base + len(rows) - 1, magic, attributes, None, gzip.compress(inner), rows[0][2])


def old_message(offset: int, magic: int, attributes: int, key: bytes | None, value: bytes | None, ms: int):
    body = struct.pack(">BB", magic, attributes) + (struct.pack(">q", ms) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@settings(max_examples=200)
@given(old_messages(), old_messages(), LIMITS, st.data())
def test_kernel_and_twin_agree_on_old_formats(first, second, limits, choice):
    data = bytearray(first + second)
    agree(bytes(data), limits=limits)
    for _ in range(choice.draw(st.integers(0, 3)) if data else 0):
        data[choice.draw(st.integers(0, len(data) - 1))] = choice.draw(st.integers(0, 255))
    agree(bytes(data), limits=limits)


@given(st.binary(min_size=17, max_size=300))
@example(b"\x00" * 100)
@example(b"\xff" * 100)
@example(b"this is no record batch, it is a line of text")
def test_bytes_that_are_no_batch_are_an_error(data):
    seen, _ = agree(data)
    magic, (length,) = data[16], struct.unpack_from(">i", data, 8)
    if magic > 2:
        assert seen[-1][0] in (CorruptRecordBatchError, UnknownMagicError)
    if length < 14:
        assert seen[-1][0] is CorruptRecordBatchError


@pytest.mark.parametrize("seed", range(10))
def test_large_random_batches_agree(seed):
    """Sizes that make every buffer of the kernel grow."""
    rand = random.Random(seed)
    rows = 3000
    headers = [
        [{"key": f"h{i}", "value": rand.randbytes(rand.randrange(50))} for i in range(rand.randrange(4))]
        or None
        for _ in range(rows)
    ]
    sizes = [0, 1, 5, 100, 3000]
    batch = pa.record_batch(
        {
            "key": pa.array([rand.choice([None, rand.randbytes(rand.choice(sizes))]) for _ in range(rows)]),
            "value": pa.array([rand.choice([None, rand.randbytes(rand.choice(sizes))]) for _ in range(rows)]),
            "headers": pa.array(
                headers if seed % 2 else [None] * 2000 + headers[2000:], records.SCHEMA.field("headers").type
            ),
        }
    )
    step = rand.choice([1, 10, 500, 3000])
    data = b"".join(
        records.encode(batch.slice(at, step), base_offset=at, codec=rand.choice(CODECS))
        for at in range(0, rows, step)
    )
    agree(data)
    agree(data, limits=records.Limits(chunk_rows=1000), fetch_offset=1234)
    whole = records.decode(data, topic="t", partition=3)
    assert whole.select(["key", "value", "headers"]).equals(batch)


@given(st.binary(max_size=20_000), st.integers(0, 7))
def test_crc_of_the_kernel_with_and_without_the_instruction(data, shift):
    part = memoryview(data)[shift:]
    expected = crc32c.crc32c(bytes(part))
    assert compiled.crc32c(part) == compiled.crc32c(part, hardware=False) == expected


def test_the_generator_above_makes_control_batches():
    data = records.encode(pa.record_batch({"value": pa.array([b"x"])}), is_control=True)
    assert data[22] & CONTROL
    (chunk,), position = agree(data)
    assert chunk == (((),) * 8, 1, -1)
    assert position == 1
