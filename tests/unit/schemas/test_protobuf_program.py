"""Failures of rows by their reasons, which name the field; by the kernel and its twin."""

from decimal import Decimal

import pyarrow as pa
import pytest
from fakes.protobuf import MACHINES, written_by, written_field


@pytest.fixture(autouse=True, params=MACHINES, ids=["kernel", "python"])
def machine(request, monkeypatch):
    written_by(request.param, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "bad", "good", "reason"),
    [
        ("int32", pa.array([2**31, 1]), 1, "a: 2147483648 is no int32"),
        ("uint32", pa.array([-1, 1]), 1, "a: -1 is no uint32"),
        ("uint64", pa.array([-1, 1]), 1, "a: -1 is no uint64"),
        ("int64", pa.array([2**63, 1], pa.uint64()), 1, "a: the number is no int64"),
        ("uint64", pa.array([Decimal(-1), Decimal(1)], pa.decimal128(20, 0)), 1, "a: the number is no uint64"),
        ("uint64", pa.array([Decimal(2**64), Decimal(1)], pa.decimal128(21, 0)), 1, "a: the number is no uint64"),
        ("float", pa.array([1e300, 1.0]), 1, "a: a double is too large for a float"),
        ("K", pa.array(["TWO", "ONE"]), 1, "a: the value is none that the enum t.K has"),
        ("K", pa.array(["007", "ONE"]), 1, "a: the value is none that the enum t.K has"),
        ("K", pa.array(["4000000000", "ONE"]), 1, "a: 4000000000 is no t.K"),
        ("string", pa.array([b"\xff", b"a"], pa.binary()).view(pa.string()), 1, "a: a string is not UTF-8"),
        ("int32", pa.array([None, 1], pa.int32()), 1, "a: the value is null, which the schema doesn't allow, and without presence it would be read as 0 or empty: fill it before"),
        ("google.protobuf.Timestamp", pa.array([253_402_300_800, 1], pa.timestamp("s", "UTC")), 1, "a: a time is out of the range of google.protobuf.Timestamp"),
        ("repeated int32", pa.array([[1, None], [1]]), 1, "a[]: the value is null, which the schema doesn't allow"),
        ("repeated int64", pa.array([None, [1]]), 1, "a: the value is null, which the schema doesn't allow, and without presence it would be read as 0 or empty: fill it before"),
    ],
)  # fmt: skip
def test_what_depends_on_the_value_is_an_error_of_its_row(kind, bad, good, reason):
    more = 'import "google/protobuf/timestamp.proto"; enum K { NONE = 0; ONE = 1; }'
    made = written_field(kind, bad, more=more)
    assert made.failures == [(0, reason)]
    assert made.records.tolist() == [good]
    assert made.values.equals(written_field(kind, bad.slice(1), more=more).values), "as where no row fails"
