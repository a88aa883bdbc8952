"""Record batches written, compacted and read by Kafka's own Java classes, beside ours."""

import base64
import gzip
import json
import random
import struct
import subprocess
from pathlib import Path

import cramjam
import crc32c
import pyarrow as pa
import pytest
import zstandard
from waiting import slow_s

from kafka_actors import records
from kafka_actors.errors import CorruptRecordBatchError, MalformedTimestampError
from kafka_actors.records import _reference
from kafka_actors.records.batch import HEADER_SIZE
from kafka_actors.testing.distribution import Distribution

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parents[1] / "java" / "records" / "RecordsOracle.java"
CLASS = "org.apache.kafka.clients.consumer.internals.RecordsOracle"
NOW = 1_700_000_000_000
FORMATS = [
    (magic, codec, kind)
    for magic, codecs in (
        (0, "none gzip snappy lz4"),
        (1, "none gzip snappy lz4"),
        (2, "none gzip snappy lz4 zstd"),
    )
    for codec in codecs.split()
    for kind in (["CreateTime"] if magic == 0 else ["CreateTime", "LogAppendTime"])
]
KERNELS = ["active", "reference"]


class Oracle:
    def __init__(self, java: str, classpath: str) -> None:
        command = [java, "-Xshare:auto", "-XX:+UseSerialGC", "-cp", classpath, CLASS]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, **request: object) -> dict:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        return answer

    def write(self, *batches: dict) -> bytes:
        return base64.b64decode(self.ask(op="write", batches=batches)["data"])

    def compact(self, data: bytes, keep: list[int]) -> bytes:
        return base64.b64decode(self.ask(op="compact", data=b64(data), keep=keep)["data"])

    def read(self, data: bytes, **options: object) -> dict:
        answer = self.try_to_read(data, **options)
        assert "failed" not in answer, answer
        return answer

    def try_to_read(
        self, data: bytes, *, fetch_offset=0, isolation_level="read_uncommitted", aborted=()
    ) -> dict:
        return self.ask(
            op="read",
            data=b64(data),
            fetch_offset=fetch_offset,
            isolation_level=isolation_level,
            aborted=list(aborted),
        )

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(slow_s(20))


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    kafka = Distribution.get()
    classes = tmp_path_factory.mktemp("oracle")
    javac = str(Path(kafka.java).with_name("javac"))
    subprocess.run([javac, "-d", classes, "-cp", kafka.classpath, SOURCE], check=True, timeout=slow_s(120))
    oracle = Oracle(kafka.java, f"{classes}:{kafka.classpath}")
    yield oracle
    oracle.close()


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def maybe_bytes(rand: random.Random) -> bytes | None:
    return rand.choice([None, b"", b"\x00", rand.randbytes(rand.choice([3, 63, 64, 65, 300, 9000]))])


def some_headers(rand: random.Random) -> list[tuple[bytes, bytes | None]]:
    names = [b"a", b"", "schlüssel".encode(), b"\xff\xfe", b"a\xe2\x82", b"trace-id"]
    return [(rand.choice(names), maybe_bytes(rand)) for _ in range(rand.choice([0, 0, 1, 2, 7]))]


def a_batch(rand: random.Random, magic=2, codec="none", kind="CreateTime", base=0, **more: object) -> dict:
    """A batch for the oracle to write; its offsets have gaps."""
    offsets = sorted(rand.sample(range(base, base + 90), rand.randint(1, 60)))
    if magic < 2:
        offsets = list(range(base, base + len(offsets)))  # the old formats are written without gaps
    rows = [
        {
            "offset": offset,
            "timestamp": NOW + rand.choice([0, 1, -5, 10_000_000, rand.randrange(-NOW, NOW)]),
            "key": b64(maybe_bytes(rand)),
            "value": b64(maybe_bytes(rand)),
            "headers": [(b64(k), b64(v)) for k, v in some_headers(rand)] if magic == 2 else [],
        }
        for offset in offsets
    ]
    return {
        "magic": magic,
        "codec": codec,
        "timestamp_type": kind,
        "base_offset": base,
        "append_time": NOW + 77,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "leader_epoch": rand.choice([-1, 0, 5]),
        "records": rows,
    } | more


def marker(kind: str, producer_id: int, base: int) -> dict:
    return {"marker": kind, "producer_id": producer_id, "base_offset": base}


def ours(data: bytes, kernel="active", limits: records.Limits | None = None, **options: object) -> dict:
    """Decodes `data` with our Decoder; returns it in the oracle's terms."""
    chosen = {"kernel": _reference} if kernel == "reference" else {}
    decoder = records.Decoder("t", 0, limits=limits or records.Limits(), **options, **chosen)
    chunks = list(decoder.feed(data))
    rows = []
    for chunk in chunks:
        chunk.batch.validate(full=True)
        rows += [row(fields) for fields in as_integers(chunk.batch).to_pylist()]
    epoch = chunks[-1].leader_epoch if chunks else -1
    return {"records": rows, "next_offset": decoder.next_offset, "leader_epoch": epoch}


def as_integers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps that Python's datetime can't express are among them."""
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))


def row(fields: dict) -> dict:
    assert fields["topic"] == "t"
    assert fields["partition"] == 0
    assert fields["headers"] != []  # null where there are none
    return {
        "offset": fields["offset"],
        "timestamp": fields["timestamp"] // 1000,
        "timestampType": fields["timestampType"],
        "key": b64(fields["key"]),
        "value": b64(fields["value"]),
        "headers": [[h["key"], b64(h["value"])] for h in fields["headers"] or []],
    }


@pytest.mark.parametrize(("magic", "codec", "kind"), FORMATS)
def test_what_java_writes_is_read_as_java_reads_it(java, magic, codec, kind):
    rand = random.Random(f"{magic}{codec}{kind}")
    for _ in range(4):
        batches = [a_batch(rand, magic, codec, kind, base) for base in (0, 100, 200)]
        data = java.write(*batches)
        for fetch_offset in (0, 3, 117, 201):
            expected = java.read(data, fetch_offset=fetch_offset)
            for kernel in KERNELS:
                assert ours(data, kernel, fetch_offset=fetch_offset) == expected
            small = ours(
                data, limits=records.Limits(chunk_rows=7, chunk_bytes=700), fetch_offset=fetch_offset
            )
            assert small == expected


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_we_write_java_reads_with_nulls_and_header_order_kept(java, codec):
    rand = random.Random(codec)
    for _ in range(4):
        source = records.decode(java.write(a_batch(rand, base=50)), topic="t", partition=0)
        for kind in ("create_time", "log_append_time"):
            options = {"timestamp_type": kind, "partition_leader_epoch": 4, "base_offset": 50}
            data = records.encode(source, codec=codec, **options)
            expected = java.read(data)
            assert ours(data) == expected
            assert [r["offset"] for r in expected["records"]] == source.column("offset").to_pylist()
            assert [r["value"] for r in expected["records"]] == [
                b64(v) for v in source.column("value").to_pylist()
            ]


def test_log_append_time_and_formats_mixed_in_one_fetch(java):
    rand = random.Random(30)
    batches = [a_batch(rand, *form, base=100 * i) for i, form in enumerate(FORMATS)]
    data = java.write(*batches)
    expected = java.read(data)
    assert {r["timestampType"] for r in expected["records"]} == {-1, 0, 1}
    for kernel in KERNELS:
        assert ours(data, kernel) == expected


@pytest.mark.parametrize(("magic", "codec"), [(m, c) for m, c, kind in FORMATS if kind == "CreateTime"])
def test_gaps_of_compacted_logs_are_kept(java, magic, codec):
    rand = random.Random(f"compact{magic}{codec}")
    data = java.write(*[a_batch(rand, magic, codec, base=base) for base in (0, 100, 200)])
    offsets = [r["offset"] for r in java.read(data)["records"]]
    first, last = offsets[:3], offsets[-3:]
    for keep in ([], first, last, offsets[1::7], [o for o in offsets if not 100 <= o < 200]):
        compacted = java.compact(data, keep)
        expected = java.read(compacted)
        assert [r["offset"] for r in expected["records"]] == list(keep)
        for kernel in KERNELS:
            assert ours(compacted, kernel) == expected
        if expected["next_offset"]:
            assert records.next_offset(compacted) == expected["next_offset"]


def transactions(rand: random.Random) -> tuple[list[dict], list[tuple[int, int, int]]]:
    """Interleaved batches of three transactional producers and a plain one; the aborted (producer, first, marker)."""
    batches, aborted, base = [], [], 0
    began: dict[int, int] = {}
    for _ in range(rand.randint(3, 25)):
        producer = rand.choice([1, 2, 3, -1])
        if producer > 0 and rand.random() < 0.4:
            # A marker may come without data of its transaction: then it has no entry either.
            kind = rand.choice(["abort", "commit"])
            if kind == "abort" and producer in began:
                aborted.append((producer, began[producer], base))
            began.pop(producer, None)
            batches.append(marker(kind, producer, base))
            base += 1
            continue
        more: dict[str, object] = {"codec": rand.choice(["none", "lz4", "zstd"]), "producer_id": producer}
        if producer > 0:
            began.setdefault(producer, base)
            more |= {"transactional": True, "producer_epoch": 0, "base_sequence": 0}
        batches.append(a_batch(rand, base=base, **more))
        base += 100
    rand.shuffle(aborted)
    return batches, aborted


@pytest.mark.parametrize("seed", range(40))
def test_transactions_are_filtered_as_java_filters_them(java, seed):
    rand = random.Random(seed)
    batches, aborted = transactions(rand)
    end = java.read(java.write(*batches))["next_offset"]
    for first in {0, rand.randrange(len(batches))}:
        # As a broker does: from the batch of the fetch offset on, with the transactions aborted from there on.
        data = java.write(*batches[first:])
        begin = batches[first]["base_offset"]
        listed = [(producer, start) for producer, start, marker_at in aborted if marker_at >= begin]
        for fetch_offset in {begin, min(begin + 1, end - 1)}:
            for level in ("read_committed", "read_uncommitted"):
                options = {"fetch_offset": fetch_offset, "isolation_level": level, "aborted": listed}
                expected = java.read(data, **options)
                for kernel in KERNELS:
                    assert ours(data, kernel, **options) == expected
                assert expected["next_offset"] == end


PLAIN = records.encode(
    pa.record_batch({"value": pa.array([b"order %d" % i * 5 for i in range(200)], pa.binary())}),
    base_offset=10,
)
BODY = PLAIN[HEADER_SIZE:]
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def packed(codec: int, stream: bytes) -> bytes:
    """The batch with `stream` as its compressed records, sealed as a producer would."""
    out = bytearray(PLAIN[:HEADER_SIZE] + stream)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">h", out, 21, codec)
    return resealed(out)


def resealed(data: bytes | bytearray) -> bytes:
    out = bytearray(data)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


def lz4(*blocks: bytes, flags=0x60, sizes=0x40, header=0, size=1, block=0, content=0, stored=False) -> bytes:
    """A frame; `header`, `block` and `content` are what its checksums are wrong by."""
    descriptor = bytes([flags, sizes]) + (struct.pack("<Q", size) if flags & 8 else b"")
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes([_reference.xxh32(descriptor) >> 8 & 0xFF ^ header])
    for data in blocks or [BODY]:
        piece = data if stored else bytes(cramjam.lz4.compress_block(data, store_size=False))
        frame += struct.pack("<I", len(piece) | stored << 31) + piece
        frame += struct.pack("<I", _reference.xxh32(piece) ^ block) if flags & 0x10 else b""
    return frame + bytes(4) + (struct.pack("<I", _reference.xxh32(BODY) ^ content) if flags & 4 else b"")


def xerial(*blocks: bytes) -> bytes:
    pieces = [bytes(cramjam.snappy.compress_raw(data)) for data in blocks]
    return (
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(p)) + p for p in pieces)
    )


def unended(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


Z, ZC = zstandard.compress(BODY), zstandard.ZstdCompressor(write_checksum=True).compress(BODY)
G, S = gzip.compress(BODY, mtime=0), bytes(cramjam.snappy.compress_raw(BODY))
SKIPPED = b"\x50\x2a\x4d\x18\2\0\0\0ab"
READ = {
    "lz4": (LZ4, lz4()),
    "lz4, stored": (LZ4, lz4(stored=True)),
    "lz4, blocks of 4 MiB": (LZ4, lz4(sizes=0x70)),
    "lz4, block checksums": (LZ4, lz4(BODY[:99], BODY[99:], flags=0x70)),
    "lz4, all fields": (LZ4, lz4(flags=0x7C, size=len(BODY))),
    "lz4, wrong content checksum": (LZ4, lz4(flags=0x64, content=1)),
    "lz4, wrong content checksum, block checksums": (LZ4, lz4(flags=0x74, content=1)),
    "lz4, wrong content size": (LZ4, lz4(flags=0x68)),
    "lz4, content size": (LZ4, lz4(flags=0x68, size=len(BODY))),
    "lz4, bytes behind": (LZ4, lz4() + b"xyz"),
    "lz4, 2,000 empty frames behind": (LZ4, lz4() + 2_000 * (lz4()[:7] + bytes(4))),
    "zstd": (ZSTD, Z),
    "zstd, checksum": (ZSTD, ZC),
    "zstd, two frames": (ZSTD, zstandard.compress(BODY[:99]) + unended(BODY[99:]) + b"\1\0\0"),
    "zstd, half a frame behind": (ZSTD, Z + Z[:7]),
    "zstd, a magic behind": (ZSTD, Z + Z[:4]),
    "zstd, skippable frames": (ZSTD, SKIPPED + Z + SKIPPED),
    "zstd, half a skippable frame behind": (ZSTD, Z + SKIPPED[:-1]),
    "gzip, zeros behind": (GZIP, G + bytes(9)),
    "gzip, no member behind": (GZIP, G + b"\x1f\x8bpadding that goes on"),
    "gzip, the start of a member behind": (GZIP, G + G[:18]),
    "gzip, an empty member behind": (GZIP, G + gzip.compress(b"", mtime=0)),
    "gzip, two members": (GZIP, gzip.compress(BODY[:99]) + gzip.compress(BODY[99:])),
    "snappy": (SNAPPY, S),
    "snappy of xerial, 3 bytes behind": (SNAPPY, xerial(BODY[:99], BODY[99:]) + bytes(3)),
    "snappy of xerial, two streams": (SNAPPY, xerial(BODY[:99]) + xerial(BODY[99:])),
}
REFUSED = {
    "lz4, wrong header checksum": (LZ4, lz4(header=1)),
    "lz4, unknown block size": (LZ4, lz4(sizes=0x30)),
    "lz4, reserved bits of the block size": (LZ4, lz4(sizes=0x41)),
    "lz4, reserved flag": (LZ4, lz4(flags=0x62)),
    "lz4, dictionary": (LZ4, lz4(flags=0x61)),
    "lz4, version": (LZ4, lz4(flags=0xA0)),
    "lz4, wrong block checksum": (LZ4, lz4(flags=0x70, block=1)),
    "lz4, block larger than the largest": (LZ4, lz4(bytes(70_000), stored=True)),
    "lz4, no end mark": (LZ4, lz4()[:-4]),
    "lz4, no content checksum": (LZ4, lz4(flags=0x64)[:-4]),
    "lz4, in two frames": (LZ4, lz4(BODY[:99]) + lz4(BODY[99:])),
    "lz4, skippable frame": (LZ4, SKIPPED + lz4()),
    "zstd, not ended": (ZSTD, unended(BODY)),
    "zstd, no checksum": (ZSTD, ZC[:-4]),
    "zstd, wrong checksum": (ZSTD, ZC[:-1] + bytes([ZC[-1] ^ 1])),
    "zstd, cut": (ZSTD, Z[:-1]),
    "zstd, a byte behind": (ZSTD, Z + b"\0"),
    "zstd, records behind": (ZSTD, Z + Z),
    "gzip, no trailer": (GZIP, G[:-8]),
    "gzip, wrong checksum": (GZIP, G[:-8] + bytes([G[-8] ^ 1]) + G[-7:]),
    "gzip, half a member behind": (GZIP, G + G[:19]),
    "gzip, records behind": (GZIP, G + G),
    "snappy, a byte behind": (SNAPPY, S + b"\0"),
    "snappy of xerial, an empty block": (SNAPPY, xerial(BODY) + bytes(4)),
    "snappy of xerial, cut": (SNAPPY, xerial(BODY)[:-1]),
}


@pytest.mark.parametrize("name", READ)
def test_a_stream_that_java_reads_is_read(java, name):
    data = packed(*READ[name])
    expected = java.read(data)
    assert len(expected["records"]) == 200
    assert ours(data) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_stream_that_java_refuses_is_refused(java, name):
    data = packed(*REFUSED[name])
    assert "failed" in java.try_to_read(data)
    with pytest.raises(CorruptRecordBatchError):
        ours(data)


def test_timestamps_beyond_microseconds_are_those_that_java_reads(java):
    """Java hands out the number; a column of microseconds can't hold it."""
    for millis in (2**63 // 1000, -(2**63 // 1000), -2, -1):
        data = bytearray(PLAIN)
        struct.pack_into(">q", data, 27, millis)
        assert ours(resealed(data)) == java.read(resealed(data))
    struct.pack_into(">q", data, 27, NOW * 1_000_000)
    assert java.read(resealed(data))["records"][0]["timestamp"] == NOW * 1_000_000
    with pytest.raises(MalformedTimestampError, match=str(NOW * 1_000_000)):
        ours(resealed(data))
