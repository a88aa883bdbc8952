"""The parts of the sticky assignor by themselves: flow, fair division, claims, and the cooperative step."""

from __future__ import annotations

from fractions import Fraction

import pytest

from assignors import Member, cooperative_adjust, current_owned
from assignors.balance import Bounds, Group, Shares, fairest
from assignors.claims import owners
from assignors.flow import Network

A, B = ("t", 0), ("t", 1)


def test_flow_takes_the_cheap_way_first_and_undoes_it_when_that_pays() -> None:
    """Two units from 0 to 3: the cheapest single path, 0-1-2-3, has to be given up for two that share no arc."""
    network = Network(4)
    to_1, to_2 = network.arc(0, 1, 1, 1), network.arc(0, 2, 1, 4)
    across = network.arc(1, 2, 1, 0)
    from_1, from_2 = network.arc(1, 3, 1, 5), network.arc(2, 3, 1, 1)
    assert network.push(0, 3) == 2
    assert [network.moved(arc) for arc in (to_1, to_2, across, from_1, from_2)] == [1, 1, 0, 1, 1]


def test_flow_prefers_cost_to_length_and_ends_without_a_path() -> None:
    network = Network(5)
    direct = network.arc(0, 4, 3, 10)
    long_way = [network.arc(i, i + 1, 2, 3) for i in range(4)]
    assert network.push(0, 4) == 5
    assert network.moved(direct) == 3
    assert [network.moved(arc) for arc in long_way] == [2, 2, 2, 2]
    assert network.push(0, 4) == 0
    assert Network(2).push(0, 1) == 0


def test_flow_knows_what_lies_on_either_side_of_a_cut() -> None:
    network = Network(4)
    network.arc(0, 1, 5)
    network.arc(1, 2, 1)
    network.arc(2, 3, 5)
    assert network.push(0, 3) == 1
    assert network.reached([0]) == {0, 1}
    assert network.reaching([3]) == {2, 3}


@pytest.mark.parametrize(
    ("capacities", "total", "expected"),
    [
        ([1, 1, 1], 9, [(3, 3)] * 3),
        ([1, 1, 1], 10, [(3, 4)] * 3),
        ([2, 2], 1, [(0, 1)] * 2),
        ([1, 1], 0, [(0, 0)] * 2),
        ([1, 3], 2, [(0, 1), (1, 2)]),
        ([1, 2, 4, 0], 10, [(1, 1), (3, 3), (6, 6), (0, 0)]),
        ([0.1, 0.2], 3, [(1, 1), (2, 2)]),
    ],
)
def test_shares_of_one_group(capacities: list[float], total: int, expected: list[tuple[int, int]]) -> None:
    shares = Shares(dict(enumerate(capacities)), one_group=True)
    assert shares.divide(range(len(capacities)), total) == dict(enumerate(expected))


@pytest.mark.parametrize("total", range(0, 60, 7))
@pytest.mark.parametrize("capacities", [(1, 2, 4), (0.5, 3), (1, 1, 7, 7), (1, 1, 1)])
def test_other_shares_fill_the_cheapest_slots(capacities: tuple[float, ...], total: int) -> None:
    division = Shares(dict(enumerate(capacities)), one_group=False).divide(range(len(capacities)), total)
    slots = sorted(
        (Fraction(2 * k - 1) / Fraction(c), m) for m, c in enumerate(capacities) for k in range(1, total + 3)
    )
    last = slots[total - 1][0] if total else 0
    contested = slots[total][0] == last
    for m in range(len(capacities)):
        price = [p for p, who in slots if who == m]
        upto = sum(p <= last for p in price)
        assert division[m] == (sum(p < last for p in price) if contested else upto, upto)


def test_members_fall_into_classes_that_cannot_even_each_other_out() -> None:
    """0 and 1 alone read a big topic, so 2 takes all of the topic it shares with 1; 3 shares nothing."""
    bounds, takers = fairest([Group((0, 1), 9), Group((1, 2), 2), Group((3,), 7)], [1, 1, 1, 1])
    assert bounds == {0: Bounds(4, 5), 1: Bounds(4, 5), 2: Bounds(2, 2), 3: Bounds(7, 7)}
    assert takers == [(0, 1), (2,), (3,)]


def test_members_that_cannot_get_as_much_are_a_class_of_their_own() -> None:
    bounds, takers = fairest([Group((0, 1), 1), Group((1, 2, 3), 12)], [1, 1, 1, 1])
    assert bounds == {0: Bounds(1, 1), 1: Bounds(4, 4), 2: Bounds(4, 4), 3: Bounds(4, 4)}
    assert takers == [(0,), (1, 2, 3)]
    assert fairest([], [1, 1]).bounds == {}


def test_owners_are_the_newest_claimants_and_a_tie_has_none() -> None:
    topics = [A[0], B[0]]
    members = {
        "a": Member(topics, owned=[A, B, A], generation=2),
        "b": Member(topics, owned=[A], generation=3),
        "c": Member(topics, owned=[B], generation=2),
    }
    assert owners(members, members) == {A: "b"}
    members["d"] = Member(topics, owned=[B], generation=4)
    assert owners(members, members) == {A: "b", B: "d"}


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_claim_of_who_does_not_subscribe_never_counts_against_the_owner(generation: int) -> None:
    members = {
        "owner": Member([A[0]], owned=[A], generation=2),
        "stranger": Member(["other"], owned=[A], generation=generation),
    }
    assert owners(members, members) == {A: "owner"}
    kept = current_owned(members)
    if generation <= 2:
        assert kept == {"owner": [A], "stranger": []}
    else:  # it is the last that had the partition: it has to let go first
        assert kept == {"owner": [], "stranger": [A]}
    assert current_owned({"stranger": members["stranger"]}) == {"stranger": [A]}


def test_current_owned_drops_outdated_claims_and_keeps_contested_ones() -> None:
    members = {
        "a": Member([], owned=[B, A], generation=2),
        "b": Member([], owned=[A], generation=3),
        "c": Member([], owned=[B], generation=2),
    }
    assert current_owned(members) == {"a": [B], "b": [A], "c": [B]}


@pytest.mark.parametrize(
    ("owned", "assigned", "expected"),
    [
        ({}, {"a": [A]}, {"a": [A]}),
        ({"a": [A]}, {"a": [A, B]}, {"a": [A, B]}),
        ({"a": [A, B]}, {"a": [A], "b": [B]}, {"a": [A], "b": []}),
        ({"gone": [A]}, {"a": [A, B]}, {"a": [B]}),
        ({"a": [A], "b": [A]}, {"a": [A]}, {"a": []}),
        ({"a": [A, A]}, {"a": [A], "b": []}, {"a": [A], "b": []}),
    ],
)
def test_cooperative_adjust_withholds_what_another_member_still_owns(
    owned: dict[str, list[tuple[str, int]]],
    assigned: dict[str, list[tuple[str, int]]],
    expected: dict[str, list[tuple[str, int]]],
) -> None:
    before = {m: list(partitions) for m, partitions in assigned.items()}
    assert cooperative_adjust(owned, assigned) == expected
    assert assigned == before


def test_members_are_values() -> None:
    member = Member(iter(["t"]), owned=iter([["t", 1]]))  # type: ignore[list-item]
    assert (member.topics, member.owned) == (("t",), (("t", 1),))
    assert {member: 1}[Member(("t",), owned=(("t", 1),))] == 1
    with pytest.raises(TypeError, match="not the string 'orders'"):
        Member("orders")
    for capacity in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="capacity"):
            Member([], capacity=capacity)
