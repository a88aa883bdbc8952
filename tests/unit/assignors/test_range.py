"""RangeAssignor on the groups of Kafka's RangeAssignorTest; the expected tables are Kafka's."""

from __future__ import annotations

import pytest

from assignors import Member, RangeAssignor, TopicPartition

RACKS = ("rack0", "rack1", "rack2", "rack3")
T123 = ("t1", "t2", "t3")
UNIFORM = {"t1": 6, "t2": 7, "t3": 2}
FIVES = {"t1": 5, "t2": 5, "t3": 5}
PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
T1234 = ("t1", "t2", "t3", "t4")


def table(text: str) -> list[TopicPartition]:
    """ "t1 0 1, t2 3" as pairs."""
    pairs = []
    for entry in filter(None, text.split(", ")):
        topic, *ids = entry.split()
        pairs += [(topic, int(p)) for p in ids]
    return pairs


def ids(counts: dict[str, int]) -> dict[str, range]:
    return {topic: range(count) for topic, count in counts.items()}


def replicas(counts: dict[str, int], factor: int, racks: int) -> dict[TopicPartition, list[str | None]]:
    """Replicas dealt over the racks, from one topic on to the next, as Kafka's test does."""
    result: dict[TopicPartition, list[str | None]] = {}
    for topic, count in counts.items():
        start = len(result)
        for p in range(count):
            result[topic, p] = [RACKS[(start + p + r) % racks] for r in range(factor)]
    return result


@pytest.mark.parametrize(
    ("counts", "topics", "expected"),
    [
        ({}, [["t1"]], [""]),
        ({"t1": 3}, [[]], [""]),
        ({"t1": 3}, [["t1"]], ["t1 0 1 2"]),
        ({"t1": 3, "other": 3}, [["t1"]], ["t1 0 1 2"]),
        ({"t1": 1, "t2": 2}, [["t1", "t2"]], ["t1 0, t2 0 1"]),
        ({"t1": 1}, [["t1"], ["t1"]], ["t1 0", ""]),
        ({"t1": 2}, [["t1"], ["t1"]], ["t1 0", "t1 1"]),
        ({"t1": 3, "t2": 2}, [["t1"], ["t1", "t2"], ["t1"]], ["t1 0", "t1 1, t2 0 1", "t1 2"]),
        ({"t1": 3, "t2": 3}, [["t1", "t2"], ["t1", "t2"]], ["t1 0 1, t2 0 1", "t1 2, t2 2"]),
    ],
)
def test_kafkas_tables(counts: dict[str, int], topics: list[list[str]], expected: list[str]) -> None:
    members = {f"consumer{i}": Member(names) for i, names in enumerate(topics, 1)}
    assert list(RangeAssignor().assign(ids(counts), members).values()) == [table(text) for text in expected]


def test_instance_ids_decide_before_member_ids_and_static_members_come_first() -> None:
    topics = ids({"t1": 3, "t2": 3})
    first, second = table("t1 0 1, t2 0 1"), table("t1 2, t2 2")
    static = {"consumer-b": Member(topics, "instance1"), "consumer-a": Member(topics, "instance2")}
    assert RangeAssignor().assign(topics, static) == {"consumer-b": first, "consumer-a": second}
    mixed = {"consumer-b": Member(topics, "instance1"), "consumer-a": Member(topics)}
    assert RangeAssignor().assign(topics, mixed) == {"consumer-b": first, "consumer-a": second}


def test_static_members_keep_their_ranges_when_a_dynamic_one_or_their_member_ids_change() -> None:
    topics = ids({"t1": 5, "t2": 4})
    static = {f"c{i}": Member(topics, f"i{i}") for i in (1, 2, 3)}
    expected = [table(text) for text in ("t1 0 1, t2 0", "t1 2, t2 1", "t1 3, t2 2", "t1 4, t2 3")]
    assert list(RangeAssignor().assign(topics, {**static, "c4": Member(topics)}).values()) == expected
    restarted = {"z9": static["c1"], "c2": static["c2"], "a0": static["c3"], "a5": Member(topics)}
    assert RangeAssignor().assign(topics, restarted) == dict(
        zip(("z9", "c2", "a0", "a5"), expected, strict=True)
    )


def test_ids_with_holes_are_split_by_rank() -> None:
    assigned = RangeAssignor().assign({"t": [7, 1, 4]}, {"a": Member(["t"]), "b": Member(["t"])})
    assert assigned == {"a": [("t", 1), ("t", 4)], "b": [("t", 7)]}


TWO_AND_TWO = [("t1", "t2")] * 2 + [("t3", "t4")] * 2


@pytest.mark.parametrize(
    ("counts", "topics", "factor", "racks", "member_racks", "expected"),
    [
        (
            UNIFORM,
            [T123] * 3,
            1,
            3,
            "012",
            ["t1 0 3, t2 0 3 6", "t1 1 4, t2 1 4, t3 0", "t1 2 5, t2 2 5, t3 1"],
        ),
        (
            UNIFORM,
            [T123] * 3,
            2,
            3,
            "012",
            ["t1 0 2, t2 0 2 3, t3 1", "t1 1 3, t2 1 4, t3 0", "t1 4 5, t2 5 6"],
        ),
        (
            UNIFORM,
            [T123] * 3,
            2,
            2,
            "012",
            ["t1 0 1, t2 0 1 2, t3 0", "t1 2 3, t2 3 4, t3 1", "t1 4 5, t2 5 6"],
        ),
        (
            UNIFORM,
            [T123, T123, ("t1", "t3")],
            1,
            3,
            "012",
            ["t1 0 3, t2 0 2 3 6", "t1 1 4, t2 1 4 5, t3 0", "t1 2 5, t3 1"],
        ),
        # Co-partitioned topics stay together, even where racks would be served better apart.
        (
            FIVES,
            [T123] * 3,
            1,
            3,
            "012",
            ["t1 0 1, t2 0 1, t3 0 1", "t1 2 3, t2 2 3, t3 2 3", "t1 4, t2 4, t3 4"],
        ),
        (
            PAIRS,
            TWO_AND_TWO,
            2,
            2,
            "0110",
            ["t1 0 1 2, t2 0 1 2", "t1 3 4 5, t2 3 4 5", "t3 0, t4 0", "t3 1, t4 1"],
        ),
        (
            PAIRS,
            TWO_AND_TWO,
            1,
            2,
            "0110",
            ["t1 0 2 4, t2 0 2 4", "t1 1 3 5, t2 1 3 5", "t3 1, t4 1", "t3 0, t4 0"],
        ),
        (
            PAIRS,
            [T1234] * 4,
            1,
            2,
            "0110",
            ["t1 0 2, t2 0 2, t3 0, t4 0", "t1 1 3, t2 1 3, t3 1, t4 1", "t1 5, t2 5", "t1 4, t2 4"],
        ),
        (
            PAIRS,
            [T1234] * 4,
            1,
            3,
            "0110",
            ["t1 0 3, t2 0 3, t3 0, t4 0", "t1 1 4, t2 1 4, t3 1, t4 1", "t1 2, t2 2", "t1 5, t2 5"],
        ),
    ],
)
def test_kafkas_tables_with_racks(
    counts: dict[str, int],
    topics: list[tuple[str, ...]],
    factor: int,
    racks: int,
    member_racks: str,
    expected: list[str],
) -> None:
    members = {
        f"consumer{i}": Member(names, rack=RACKS[int(rack)])
        for i, (names, rack) in enumerate(zip(topics, member_racks, strict=True))
    }
    assigned = RangeAssignor().assign(ids(counts), members, racks=replicas(counts, factor, racks))
    assert list(assigned.values()) == [table(text) for text in expected]


def test_a_member_without_a_rack_takes_what_comes_and_leaves_the_rest_to_match() -> None:
    members = {"a": Member(["t"]), "b": Member(["t"], rack="y"), "c": Member(["t"], rack="x")}
    racks = {("t", 0): ["y"], ("t", 1): ["x"], ("t", 2): ["y", None]}
    assigned = RangeAssignor().assign({"t": range(3)}, members, racks=racks)
    assert assigned == {"a": [("t", 0)], "b": [("t", 2)], "c": [("t", 1)]}
