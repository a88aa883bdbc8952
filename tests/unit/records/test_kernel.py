"""Which kernel is in use, and that its twin is one."""

import sys
from typing import get_type_hints

from kafka_actors import records
from kafka_actors.records import _reference
from kafka_actors.records.batch import TABLE_WIDTH, ColumnField, Kernel


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
