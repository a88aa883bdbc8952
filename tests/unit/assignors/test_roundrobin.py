"""RoundRobinAssignor on the groups of Kafka's RoundRobinAssignorTest; the expected tables are Kafka's."""

from __future__ import annotations

import pytest

from assignors import Assignment, Member, RoundRobinAssignor

T12 = ("t1", "t2")


def dealt(counts: dict[str, int], members: dict[str, Member]) -> dict[str, str]:
    assigned: Assignment = RoundRobinAssignor().assign({t: range(n) for t, n in counts.items()}, members)
    return {m: " ".join(f"{topic[1:]}/{p}" for topic, p in tps) for m, tps in assigned.items()}


@pytest.mark.parametrize(
    ("counts", "topics", "expected"),
    [
        ({}, [()], [""]),
        ({}, [("t1",)], [""]),
        ({"t1": 3, "t2": 3}, [("t1",)], ["1/0 1/1 1/2"]),
        ({"t1": 1, "t2": 2}, [T12], ["1/0 2/0 2/1"]),
        ({"t1": 1}, [("t1",)] * 2, ["1/0", ""]),
        ({"t1": 2}, [("t1",)] * 2, ["1/0", "1/1"]),
        ({"t1": 3, "t2": 2}, [("t1",), T12, ("t1",)], ["1/0", "1/1 2/0 2/1", "1/2"]),
        ({"t1": 3, "t2": 3}, [T12] * 2, ["1/0 1/2 2/1", "1/1 2/0 2/2"]),
        # Not the most balanced: KIP-54's example of what sticky does better.
        ({"t1": 1, "t2": 2, "t3": 3}, [("t1",), T12, ("t1", "t2", "t3")], ["1/0", "2/0", "2/1 3/0 3/1 3/2"]),
    ],
)
def test_kafkas_tables(counts: dict[str, int], topics: list[tuple[str, ...]], expected: list[str]) -> None:
    members = {f"consumer{i}": Member(names) for i, names in enumerate(topics, 1)}
    assert list(dealt(counts, members).values()) == expected


def test_static_members_are_dealt_to_first_and_keep_their_place() -> None:
    static = {f"c{i}": Member(T12, f"i{i}") for i in (1, 2, 3)}
    counts = {"t1": 3, "t2": 3}
    expected = {"c1": "1/0 2/1", "c2": "1/1 2/2", "c3": "1/2"}
    assert dealt(counts, {"a4": Member(T12), **static}) == {**expected, "a4": "2/0"}
    assert dealt(counts, {"z5": Member(T12), **static}) == {**expected, "z5": "2/0"}


def test_order_is_by_utf16_units_as_in_java() -> None:
    # U+FF5E comes before U+1F600 by code point, but Java compares the surrogate 0xD83D first.
    assert dealt({"t1": 1}, {"\uff5e": Member(["t1"]), "\U0001f600": Member(["t1"])})["\U0001f600"] == "1/0"


def test_more_members_than_partitions_leaves_the_rest_idle() -> None:
    assigned = dealt({"t1": 2}, {f"m{i}": Member(["t1"]) for i in range(5)})
    assert assigned == {"m0": "1/0", "m1": "1/1", "m2": "", "m3": "", "m4": ""}
