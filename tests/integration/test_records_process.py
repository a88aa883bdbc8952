"""Records in a process of its own: memory under hostile batches, a missing extension, a missing compiler."""

import gzip
import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cramjam
import crc32c
import pytest
import zstandard
from waiting import slow_s

from kafka_actors.records.batch import HEADER
from kafka_actors.records.compression import CODECS, XERIAL_MAGIC

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
BLOCK = bytes(MIB)
UNPACKED = 400  # MiB

READ = """
import resource, sys
from kafka_actors import records
from kafka_actors.errors import BatchTooLargeError
import kafka_actors.records.compression, pyarrow
data = open(sys.argv[1], "rb").read()
limits = records.Limits(max_decompressed_batch_bytes=int(sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(records.Decoder("t", 0, limits=limits).feed(data))
except BatchTooLargeError as error:
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 0, 7, 8), error
else:
    raise SystemExit("it was read")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

WITHOUT = """
import sys, warnings
sys.modules["kafka_actors.records._kernel"] = None   # what a failed build leaves: nothing to import
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from kafka_actors import records
    from kafka_actors.records import decoder, kernel
ours = [w for w in seen if "record kernel" in str(w.message)]
assert len(ours) == 1 and ours[0].category is RuntimeWarning, seen
assert records.KERNEL == "python", records.KERNEL
import pyarrow as pa
data = records.encode(pa.record_batch({"value": pa.array([b"a", None])}), codec="zstd")
assert records.decode(data, topic="t", partition=0).column("value").to_pylist() == [b"a", None]
assert records.next_offset(data) == 2
"""


def gzip_bomb() -> bytes:
    stream = zlib.compressobj(wbits=31)
    return b"".join(stream.compress(BLOCK) for _ in range(UNPACKED)) + stream.flush()


def gzip_members_bomb() -> bytes:
    return gzip.compress(BLOCK) * UNPACKED


def snappy_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(BLOCK))
    return XERIAL_MAGIC + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * UNPACKED


def snappy_lie() -> bytes:
    """A raw block that claims 400 MiB and holds nothing."""
    return b"\x80\x80\x80\xc8\x01" + bytes(1000)


def lz4_bomb() -> bytes:
    stream = cramjam.lz4.Compressor(block_linked=False)
    for _ in range(UNPACKED):
        stream.compress(BLOCK)
    return bytes(stream.finish())


def zstd_bomb() -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(BLOCK) for _ in range(UNPACKED)) + stream.flush()


def zstd_frames_bomb() -> bytes:
    return zstandard.compress(BLOCK) * UNPACKED


def zstd_sized_bomb() -> bytes:
    """A frame that says its size, which zstandard's one-shot call allocates at once."""
    stream = zstandard.ZstdCompressor().compressobj(size=UNPACKED * MIB)
    return b"".join(stream.compress(BLOCK) for _ in range(UNPACKED)) + stream.flush()


BOMBS = {
    "gzip": (gzip_bomb, gzip_members_bomb),
    "snappy": (snappy_bomb, snappy_lie),
    "lz4": (lz4_bomb,),
    "zstd": (zstd_bomb, zstd_frames_bomb, zstd_sized_bomb),
}


def sealed(codec: str, packed: bytes) -> bytes:
    out = bytearray(HEADER.pack(7, 49 + len(packed), 0, 2, 0, CODECS[codec], 0, 0, 0, -1, -1, -1, 1) + packed)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


@pytest.mark.parametrize(("codec", "make"), [(codec, make) for codec, all_ in BOMBS.items() for make in all_])
@pytest.mark.parametrize("limit", [8 * MIB, 128 * MIB])
def test_a_bomb_costs_at_most_the_limit(codec, make, limit, tmp_path):
    file = tmp_path / "bomb"
    file.write_bytes(sealed(codec, make()))
    command = [sys.executable, "-c", READ, file, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=slow_s(120), check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    grown_kib = int(done.stdout)
    assert grown_kib * 1024 < limit + 24 * MIB


READ_OLD = """
import resource, sys
from kafka_actors import records
import kafka_actors.records.compression, pyarrow
data = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(sum(chunk.batch.num_rows for chunk in records.Decoder("t", 0).feed(data)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
OLD_MESSAGES = 300_000


@pytest.mark.parametrize("magic", [0, 1])
def test_many_small_messages_of_an_old_format_cost_what_their_bytes_do(magic, tmp_path):
    def message(offset: int, attributes: int, value: bytes) -> bytes:
        body = struct.pack(">BB", magic, attributes) + bytes(8 * magic)
        body += struct.pack(">ii", -1, len(value)) + value
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    inner = b"".join(message(offset, 0, b"") for offset in range(OLD_MESSAGES))
    file = tmp_path / "old"
    file.write_bytes(message(OLD_MESSAGES - 1, 1, gzip.compress(inner, 1)))
    command = [sys.executable, "-c", READ_OLD, file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=slow_s(120), check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows, grown_kib = map(int, done.stdout.split())
    assert rows == OLD_MESSAGES
    assert grown_kib * 1024 < len(inner) + 32 * MIB


def test_without_the_extension_one_warning_and_the_same_answers():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=slow_s(60), cwd=ROOT)


def test_the_build_survives_a_missing_compiler(tmp_path):
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    leave = shutil.ignore_patterns("*.so", "_*kernel.c", "__pycache__")
    shutil.copytree(ROOT / "kafka_actors", tmp_path / "kafka_actors", ignore=leave)
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": slow_s(60)}
    broken = subprocess.run(build, env=os.environ | {"CC": "/bin/false"}, check=False, **options)
    assert broken.returncode == 0, broken.stderr
    assert "a compiled kernel was not built" in broken.stderr
    show = [sys.executable, "-W", "ignore", "-c", "from kafka_actors import records; print(records.KERNEL)"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    said = subprocess.run(show, env=environment, check=True, **options)
    assert said.stdout.strip() == "python"


WITHOUT_MEMORY = """
import resource
import pyarrow as pa
from kafka_actors import records

least = resource.getrlimit(resource.RLIMIT_AS)
for codec in ("gzip", "snappy", "lz4", "zstd"):
    small, large = (
        records.encode(pa.record_batch({"value": pa.array([value])}), codec=codec) for value in (b"v", bytes(48 << 20))
    )
    records.decode(small, topic="t", partition=0)
    with open("/proc/self/status") as status:
        size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), least[1]))
    try:
        records.decode(large, topic="t", partition=0)
    except MemoryError as error:
        print(codec, "memory" in str(error))
    resource.setrlimit(resource.RLIMIT_AS, least)
    assert records.decode(large, topic="t", partition=0).num_rows == 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_being_out_of_memory_is_not_a_corrupt_batch():
    """Under on_bad_batch="skip" the batch would be left out."""
    command = [sys.executable, "-c", WITHOUT_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=slow_s(120), check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{codec} True" for codec in ("gzip", "snappy", "lz4", "zstd")]
