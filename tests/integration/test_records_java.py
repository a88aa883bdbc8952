"""Record batches written, compacted and read by Kafka's own Java classes, beside ours."""

import base64
import json
import random
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_actors import records
from kafka_actors.records import _reference
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

    def read(self, data: bytes, *, fetch_offset=0, isolation_level="read_uncommitted", aborted=()) -> dict:
        answer = self.ask(
            op="read",
            data=b64(data),
            fetch_offset=fetch_offset,
            isolation_level=isolation_level,
            aborted=list(aborted),
        )
        assert "failed" not in answer, answer
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    kafka = Distribution.get()
    classes = tmp_path_factory.mktemp("oracle")
    javac = str(Path(kafka.java).with_name("javac"))
    subprocess.run([javac, "-d", classes, "-cp", kafka.classpath, SOURCE], check=True, timeout=120)
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
    """What our Decoder makes of `data`, in the oracle's terms."""
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
def test_theme_20_what_java_writes_is_read_as_java_reads_it(java, magic, codec, kind):
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
def test_theme_32_what_we_write_java_reads_with_nulls_and_header_order_kept(java, codec):
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


def test_theme_30_log_append_time_and_formats_mixed_in_one_fetch(java):
    rand = random.Random(30)
    batches = [a_batch(rand, *form, base=100 * i) for i, form in enumerate(FORMATS)]
    data = java.write(*batches)
    expected = java.read(data)
    assert {r["timestampType"] for r in expected["records"]} == {-1, 0, 1}
    for kernel in KERNELS:
        assert ours(data, kernel) == expected


@pytest.mark.parametrize(("magic", "codec"), [(m, c) for m, c, kind in FORMATS if kind == "CreateTime"])
def test_theme_29_and_31_gaps_of_compacted_logs_are_kept(java, magic, codec):
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
def test_theme_28_transactions_are_filtered_as_java_filters_them(java, seed):
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
