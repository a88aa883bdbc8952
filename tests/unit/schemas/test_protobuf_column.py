"""Columns as Protobuf's scalars and times, and values that don't fit; by the kernel and its twin."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from fakes.protobuf import MACHINES, written_by, written_field


@pytest.fixture(autouse=True, params=MACHINES, ids=["kernel", "python"])
def machine(request, monkeypatch):
    written_by(request.param, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("int32", pa.array([-1], pa.int8()), b"\x08" + b"\xff" * 9 + b"\1"),
        ("sint32", pa.array([-1], pa.int64()), b"\x08\1"),
        ("uint32", pa.array([2**32 - 1], pa.int64()), b"\x08\xff\xff\xff\xff\x0f"),
        ("uint64", pa.array([2**64 - 1], pa.uint64()), b"\x08" + b"\xff" * 9 + b"\1"),
        ("uint64", pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), b"\x08" + b"\xff" * 9 + b"\1"),
        ("fixed32", pa.array([7], pa.uint32()), b"\x0d\7\0\0\0"),
        ("sfixed64", pa.array([-2], pa.int64()), b"\x09\xfe" + b"\xff" * 7),
        ("float", pa.array([1.5], pa.float64()), b"\x0d\0\0\xc0\x3f"),
        ("double", pa.array([-0.0]), b"\x09" + bytes(7) + b"\x80"),
        ("double", pa.array([0.0]), b""),
        ("bool", pa.array([True]), b"\x08\1"),
        ("bool", pa.array([False]), b""),
        ("bytes", pa.array([b"ab"], pa.large_binary()), b"\x0a\2ab"),
        ("string", pa.array(["a"]).dictionary_encode(), b"\x0a\1a"),
        ("K", pa.array(["ONE"]), b"\x08\1"),
        ("K", pa.array(["UNO"]), b"\x08\1"),
        ("K", pa.array(["9"]), b"\x08\x09"),
        ("K", pa.array([9], pa.int16()), b"\x08\x09"),
        ("K", pa.array(["NONE"]), b""),
    ],
)
def test_columns_as_scalars(kind, column, value):
    enum = "enum K { option allow_alias = true; NONE = 0; ONE = 1; UNO = 1; }"
    made = written_field(kind, column, more=enum)
    assert (made.values.to_pylist(), made.failures) == ([value], [])


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("Timestamp", pa.array([datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)]), b"\x0a\x11\x08" + b"\xff" * 9 + b"\1\x10\x80\xca\xb5\xee\1"),
        ("Timestamp", pa.array([0], pa.timestamp("s", "UTC")), b"\x0a\0"),
        ("Timestamp", pa.array([1], pa.timestamp("ns", "UTC")), b"\x0a\2\x10\1"),
        ("Duration", pa.array([timedelta(seconds=-1.5)]), b"\x0a\x16\x08" + b"\xff" * 9 + b"\1\x10\x80\xb6\xca\x91\xfe\xff\xff\xff\xff\1"),
        ("Int32Value", pa.array([0], pa.int32()), b"\x0a\0"),
        ("Int32Value", pa.array([None], pa.int32()), b""),
        ("StringValue", pa.array(["a"]), b"\x0a\3\x0a\1a"),
    ],
)  # fmt: skip
def test_well_known_types(kind, column, value):
    imports = "".join(
        f'import "google/protobuf/{one}.proto";' for one in ("timestamp", "duration", "wrappers")
    )
    assert written_field(f"google.protobuf.{kind}", column, more=imports).values.to_pylist() == [value]
