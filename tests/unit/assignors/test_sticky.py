"""The sticky assignors on chosen groups; many come from Kafka's AbstractStickyAssignorTest."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import pytest

from assignors import (
    Assignment,
    CooperativeStickyAssignor,
    Member,
    StickyAssignor,
    TopicPartition,
    cooperative_adjust,
)

sticky = StickyAssignor()


def tps(topic: str, *ids: int) -> list[TopicPartition]:
    return [(topic, p) for p in ids]


def loads(assigned: Mapping[str, list[TopicPartition]]) -> dict[str, int]:
    return {m: len(partitions) for m, partitions in assigned.items()}


def later(
    assigned: Assignment, *members: str, topics: tuple[str, ...], generation: int = 1
) -> dict[str, Member]:
    return {m: Member(topics, owned=assigned.get(m, ()), generation=generation) for m in members}


def test_the_two_differ_in_name_and_protocol_alone() -> None:
    assert (sticky.name, sticky.protocol) == ("sticky", "eager")
    cooperative = CooperativeStickyAssignor()
    assert (cooperative.name, cooperative.protocol) == ("cooperative-sticky", "cooperative")
    group = {"a": Member(["t"], owned=tps("t", 0, 1, 2), generation=1), "b": Member(["t"])}
    assert cooperative.assign({"t": range(3)}, group) == sticky.assign({"t": range(3)}, group)


@pytest.mark.parametrize(
    ("partitions", "members", "expected"),
    [
        ({}, {}, {}),
        ({"t": range(3)}, {}, {}),
        ({}, {"a": Member(["t"])}, {"a": []}),
        ({"t": []}, {"a": Member(["t"])}, {"a": []}),
        ({"t": range(3)}, {"a": Member([])}, {"a": []}),
        ({"t": [5, 2]}, {"a": Member(["t", "t"]), "b": Member([])}, {"a": tps("t", 2, 5), "b": []}),
    ],
)
def test_a_group_without_members_topics_or_partitions_is_assigned_what_there_is(
    partitions: dict[str, list[int]], members: dict[str, Member], expected: Assignment
) -> None:
    assert sticky.assign(partitions, members) == expected


def test_a_fresh_group_is_dealt_like_round_robin() -> None:
    group = {"a": Member(["t", "u"]), "b": Member(["t", "u"])}
    assigned = sticky.assign({"t": range(3), "u": range(3)}, group)
    assert assigned == {"a": [("t", 0), ("t", 2), ("u", 1)], "b": [("t", 1), ("u", 0), ("u", 2)]}


def test_one_member_more_takes_only_what_it_needs_and_of_every_topic() -> None:
    topics = ("t", "u")
    partitions = {topic: range(12) for topic in topics}
    assigned = sticky.assign(partitions, {"a": Member(topics)})
    for members in (("a", "b"), ("a", "b", "c", "d")):
        before = assigned
        assigned = sticky.assign(partitions, later(before, *members, topics=topics))
        share = 12 // len(members)
        for m in members:
            assert [sum(t == topic for t, _ in assigned[m]) for topic in topics] == [share, share]
            assert m not in before or set(assigned[m]) <= set(before[m])


def test_members_that_own_enough_keep_it_and_the_last_partition_goes_to_one_of_them() -> None:
    group = {
        "a": Member(["t", "u"], owned=[("t", 0), ("u", 1)], generation=1),
        "b": Member(["t", "u"], owned=[("t", 1), ("u", 2)], generation=1),
    }
    assigned = sticky.assign({"t": range(2), "u": range(3)}, group)
    assert assigned == {"a": [("t", 0), ("u", 0), ("u", 1)], "b": [("t", 1), ("u", 2)]}


def test_who_owns_the_larger_share_keeps_it_whatever_its_name() -> None:
    group = {
        "a": Member(["t"], owned=tps("t", 0), generation=1),
        "b": Member(["t"], owned=tps("t", 1, 2), generation=1),
    }
    assert sticky.assign({"t": range(3)}, group) == {"a": tps("t", 0), "b": tps("t", 1, 2)}


def test_the_stale_one_of_two_claims_gives_way() -> None:
    claim = [("t", 0), ("t", 2), ("u", 1)]
    group = {
        "a": Member(["t", "u"], owned=claim, generation=9),
        "b": Member(["t", "u"], owned=claim, generation=10),
    }
    assigned = sticky.assign({"t": range(3), "u": range(3)}, group)
    assert assigned == {"a": [("t", 1), ("u", 0), ("u", 2)], "b": claim}


def test_an_old_claim_that_nobody_contests_is_honoured() -> None:
    topics = ("t", "u", "v", "w")
    partitions = {topic: range(3) for topic in topics}
    owned = {
        "b": [("t", 0), ("v", 0), ("u", 0)],
        "c": [("w", 2), ("v", 2), ("u", 1)],
        "d": [("w", 1), ("t", 1), ("t", 2)],
    }
    group = {
        m: Member(topics, owned=owned.get(m, ()), generation=g)
        for m, g in zip("abcd", (-1, 9, 8, 7), strict=True)
    }
    assert sticky.assign(partitions, group)["a"] == [("u", 2), ("v", 1), ("w", 0)]


def test_of_two_claims_in_one_generation_neither_counts() -> None:
    group = {
        "a": Member(["t"], owned=tps("t", 0, 1), generation=3),
        "b": Member(["t"], owned=tps("t", 0, 2), generation=3),
        "c": Member(["t"]),
    }
    assigned = sticky.assign({"t": range(3)}, group)
    assert assigned == {"a": tps("t", 1), "b": tps("t", 2), "c": tps("t", 0)}
    adjusted = cooperative_adjust({m: member.owned for m, member in group.items()}, assigned)
    assert adjusted == {"a": tps("t", 1), "b": tps("t", 2), "c": []}


@pytest.mark.parametrize("generations", list(permutations((1, 2, 3))))
def test_three_claims_to_one_partition_with_uneven_subscriptions(generations: tuple[int, int, int]) -> None:
    claims = (tps("t", 0, 2), tps("t", 1, 2, 3), tps("t", 2, 4, 5))
    group = {
        m: Member(["t"], owned=c, generation=g) for m, c, g in zip("abc", claims, generations, strict=True)
    }
    group["d"] = Member(["u"], owned=tps("u", 0), generation=2)
    assigned = sticky.assign({"t": range(6), "u": range(1)}, group)
    assert loads(assigned) == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert {("t", 2)} <= set(assigned["abc"[generations.index(3)]])


def test_claims_to_what_does_not_exist_or_is_not_wanted_count_for_nothing() -> None:
    group = {
        "a": Member(
            ["t"], owned=[*tps("t", 7, 8, 9, -1), ("gone", 0), ("u", 0), ("t", 0), ("t", 0)], generation=5
        ),
        "b": Member(["t", "u"], owned=[("u", 1)], generation=5),
    }
    assert sticky.assign({"t": [0, 1], "u": [0, 1]}, group) == {"a": tps("t", 0, 1), "b": tps("u", 0, 1)}


@pytest.mark.parametrize("generation", [4, 5, 6])
def test_a_claim_of_who_does_not_subscribe_moves_nothing(generation: int) -> None:
    group = {
        "a": Member(["u"], owned=tps("t", 0, 1, 2, 3), generation=generation),
        "b": Member(["t"], owned=tps("t", 2, 3), generation=5),
        "c": Member(["t"], owned=tps("t", 0, 1), generation=5),
    }
    assigned = sticky.assign({"t": range(4), "u": range(1)}, group)
    assert assigned == {"a": tps("u", 0), "b": tps("t", 2, 3), "c": tps("t", 0, 1)}


def test_a_partition_without_owner_is_not_the_property_of_the_member_with_an_empty_id() -> None:
    group = {"": Member(["t"], owned=tps("t", 1), generation=9), "a": Member(["t"])}
    assert sticky.assign({"t": range(2)}, group) == {"": tps("t", 1), "a": tps("t", 0)}


def test_a_chain_of_moves_is_found_where_no_single_move_helps() -> None:
    """t can go from a to b and u from b to c; Java's search sees no move that helps by itself and stops."""
    group = {
        "a": Member(["t"], owned=tps("t", 0, 1, 2), generation=1),
        "b": Member(["t", "u"], owned=tps("u", 0, 1), generation=1),
        "c": Member(["u"], owned=tps("u", 2), generation=1),
    }
    assigned = sticky.assign({"t": range(3), "u": range(3)}, group)
    assert loads(assigned) == {"a": 2, "b": 2, "c": 2}
    assert sum(len(set(m.owned) - set(assigned[name])) for name, m in group.items()) == 2


def test_poor_round_robin_scenario() -> None:
    everything, odd = ("t1", "t2", "t3", "t4", "t5"), ("t1", "t3", "t5")
    group = {"a": Member(everything), "b": Member(odd), "c": Member(odd), "d": Member(everything)}
    assigned = sticky.assign(
        {"t1": range(2), "t2": range(1), "t3": range(2), "t4": range(1), "t5": range(2)}, group
    )
    assert loads(assigned) == dict.fromkeys("abcd", 2)


def test_a_group_on_which_java_never_ends() -> None:
    """Found by random search: StickyAssignor of kafka-clients 4.1.1 moves partitions in a circle here."""
    owned = {"c34": tps("t2", *range(13)), "c68": tps("t1", 0, 2, 4), "c79": tps("t1", 1, 3)}
    topics = {
        "c34": ("t2",),
        "c68": ("t1",),
        "c79": ("t1",),
        "new-0": ("t2", "t1"),
        "new-1": ("t0", "t2", "t1"),
        "new-2": ("t2",),
    }
    group = {
        m: Member(names, owned=owned.get(m, ()), generation=7 if m in owned else -1)
        for m, names in topics.items()
    }
    assigned = sticky.assign({"t1": range(5), "t2": range(13)}, group)
    assert sorted(loads(assigned).values()) == [2, 3, 3, 3, 3, 4]
    assert assigned["c68"] == owned["c68"]
    assert assigned["c79"] == owned["c79"]


def test_capacities_share_by_largest_remainder() -> None:
    group = {m: Member(["t"], capacity=c) for m, c in (("a", 1), ("b", 2), ("c", 4), ("d", 0))}
    # Exact shares of 10: 1.43, 2.86, 5.71 and 0.
    assert loads(sticky.assign({"t": range(10)}, group)) == {"a": 1, "b": 3, "c": 6, "d": 0}


def test_equal_capacities_other_than_one_change_nothing() -> None:
    ones = {m: Member(["t"]) for m in "abc"}
    thirds = {m: Member(["t"], capacity=0.3) for m in "abc"}
    assert sticky.assign({"t": range(10)}, thirds) == sticky.assign({"t": range(10)}, ones)


def test_without_any_capacity_all_share_equally() -> None:
    group = {m: Member(["t"], capacity=0) for m in "ab"}
    assert loads(sticky.assign({"t": range(4)}, group)) == {"a": 2, "b": 2}


def test_a_member_without_capacity_takes_what_nobody_else_may() -> None:
    group = {"a": Member(["t", "u"], capacity=0), "b": Member(["t"], capacity=3)}
    assert sticky.assign({"t": range(3), "u": range(2)}, group) == {
        "a": tps("u", 0, 1),
        "b": tps("t", 0, 1, 2),
    }


def test_a_worker_that_grows_takes_partitions_and_nothing_else_moves() -> None:
    before = {"a": tps("t", 0, 1, 2, 3), "b": tps("t", 4, 5, 6, 7), "c": tps("t", 8, 9, 10, 11)}
    group = {m: Member(["t"], owned=owned, capacity=2 if m == "a" else 1) for m, owned in before.items()}
    assigned = sticky.assign({"t": range(12)}, group)
    assert loads(assigned) == {"a": 6, "b": 3, "c": 3}
    assert all(set(assigned[m]) < set(before[m]) for m in "bc")


def test_racks_decide_among_equals() -> None:
    racks = {("t", p): ["x" if p < 2 else "y"] for p in range(4)}
    group = {"a": Member(["t"], rack="y"), "b": Member(["t"], rack="x")}
    assert sticky.assign({"t": range(4)}, group, racks=racks) == {"a": tps("t", 2, 3), "b": tps("t", 0, 1)}


def test_racks_move_nothing_that_is_owned() -> None:
    racks = {("t", 0): ["y"], ("t", 1): ["x"]}
    group = {
        "a": Member(["t"], rack="x", owned=tps("t", 0), generation=1),
        "b": Member(["t"], rack="y", owned=tps("t", 1), generation=1),
    }
    assert sticky.assign({"t": range(2)}, group, racks=racks) == {"a": tps("t", 0), "b": tps("t", 1)}


def test_of_what_must_move_the_partition_far_from_its_owner_goes() -> None:
    racks = {("t", 0): ["y"], ("t", 1): ["x"], ("t", 2): ["x"], ("t", 3): ["x"]}
    group = {
        "a": Member(["t"], rack="x", owned=tps("t", 0, 1, 2, 3), generation=1),
        "b": Member(["t"], rack="y"),
    }
    assert ("t", 0) in sticky.assign({"t": range(4)}, group, racks=racks)["b"]


def test_of_what_must_move_the_far_one_goes_also_where_its_next_owner_has_no_rack() -> None:
    racks = {("t", 0): ["x"], ("t", 1): ["y"], ("t", 2): ["x"], ("t", 3): ["y"]}
    group = {"a": Member(["t"], rack="x", owned=tps("t", 0, 1, 2, 3), generation=1), "b": Member(["t"])}
    assert sticky.assign({"t": range(4)}, group, racks=racks) == {"a": tps("t", 0, 2), "b": tps("t", 1, 3)}
