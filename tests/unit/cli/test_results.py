from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from kafka_actors.cli.results import columns, plain, to_yaml
from kafka_actors.types import TopicPartition

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.text(st.characters(exclude_categories=["Cs"]))
)


@given(
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_yaml_is_read_back_as_what_it_was(document: Any) -> None:
    assert yaml.safe_load(to_yaml(document)) == document


@pytest.mark.parametrize(
    "text", ["no", "1e3", "0x1f", "1:30", "~", "", " x", "a: b", "- a", "2026-01-31", "null", "é"]
)
def test_texts_that_yaml_takes_for_something_else_are_quoted(text: str) -> None:
    assert to_yaml({"group": text}) == f'group: "{text}"'


def test_yaml_is_in_block_style() -> None:
    assert to_yaml([{"group_id": "g", "members": [{"id": 1}, {"id": 2}], "none": []}]) == (
        "- group_id: g\n  members:\n    - id: 1\n    - id: 2\n  none: []"
    )


def test_columns_are_as_wide_as_what_is_in_them_and_none_is_a_dash() -> None:
    assert columns(("GROUP", "LAG"), [("a-long-name", 5), ("b", None)]) == [
        "GROUP        LAG",
        "a-long-name  5",
        "b            -",
    ]


def test_structs_and_partitions_are_dicts() -> None:
    class Row(Struct):
        a: int
        b: tuple[TopicPartition, ...]

    assert plain([Row(1, (TopicPartition("t", 2),))]) == [{"a": 1, "b": [{"topic": "t", "partition": 2}]}]
