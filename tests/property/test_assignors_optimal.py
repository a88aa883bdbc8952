"""The sticky assignor beside an exhaustive search over all assignments of small groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import assignors
from assignors import Member, TopicPartition

TOPICS = ("t", "u", "v")
MEMBERS = ("a", "b", "c", "d")
partition = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2))


class Case(NamedTuple):
    partitions: list[TopicPartition]
    members: dict[str, Member]
    racks: dict[TopicPartition, list[str | None]]


@st.composite
def cases(draw: st.DrawFn, capacities: Iterable[float] = (1,), uneven: bool = True) -> Case:
    topics = st.sets(st.sampled_from(TOPICS)) if uneven else st.just(set(TOPICS))
    member = st.builds(
        Member,
        topics=topics.map(sorted),
        owned=st.lists(partition, max_size=5),
        generation=st.integers(0, 2),
        rack=st.sampled_from((None, "x", "y")),
        capacity=st.sampled_from(tuple(capacities)),
    )
    members = draw(st.dictionaries(st.sampled_from(MEMBERS), member, min_size=1))
    wanted = {topic for m in members.values() for topic in m.topics}
    partitions = [tp for tp in draw(st.sets(partition, max_size=6)) if tp[0] in wanted]
    near = st.lists(st.sampled_from(("x", "y", "z")), min_size=1, max_size=2)
    return Case(sorted(partitions), members, draw(st.dictionaries(partition, near)))


def rightful_owner(case: Case, tp: TopicPartition) -> str | None:
    wanted = {name: m for name, m in case.members.items() if tp[0] in m.topics}
    claims = sorted(((m.generation, name) for name, m in wanted.items() if tp in m.owned), reverse=True)
    if not claims or (len(claims) > 1 and claims[1][0] == claims[0][0]):
        return None
    return claims[0][1]


def imbalance(case: Case, loads: Counter[str]) -> Fraction:
    """Squared distance from the exact share where all may take all, else the sum of load² / capacity."""
    topics = {topic for topic, _ in case.partitions}
    kinds = {frozenset(name for name, m in case.members.items() if topic in m.topics) for topic in topics}
    among = set().union(*kinds)
    capacity = {name: Fraction(case.members[name].capacity) for name in among}
    if len(kinds) == 1 and len(set(capacity.values())) > 1:
        share = Fraction(len(case.partitions)) / sum(capacity.values())
        return sum((loads[n] - share * capacity[n]) ** 2 for n in among) or Fraction(0)
    if len(set(capacity.values())) == 1:
        capacity = dict.fromkeys(among, Fraction(1))
    return sum((Fraction(loads[n] ** 2) / capacity[n] for n in among), Fraction(0))


def cost(
    case: Case, owners: list[str | None], racks: bool, takers: tuple[str, ...]
) -> tuple[Fraction, int, int]:
    moves = sum(owner is not None and owner != taker for owner, taker in zip(owners, takers, strict=True))
    far = 0
    if racks:
        for tp, taker in zip(case.partitions, takers, strict=True):
            near, rack = case.racks.get(tp), case.members[taker].rack
            far += bool(near and rack and rack not in near)
    return imbalance(case, Counter(takers)), moves, far


def check_best(case: Case, *, racks: bool = False) -> None:
    ids = {topic: [p for t, p in case.partitions if t == topic] for topic in TOPICS}
    assigned = assignors.get("sticky").assign(ids, case.members, racks=case.racks if racks else None)
    taker = {tp: name for name, tps in assigned.items() for tp in tps}
    owners = [rightful_owner(case, tp) for tp in case.partitions]
    eligible = [
        [name for name, m in case.members.items() if topic in m.topics] for topic, _ in case.partitions
    ]
    best = min(cost(case, owners, racks, takers) for takers in product(*eligible))
    assert cost(case, owners, racks, tuple(taker[tp] for tp in case.partitions)) == best


@given(cases())
@settings(max_examples=300, deadline=None)
def test_no_assignment_is_more_balanced_and_none_as_balanced_moves_less(case: Case) -> None:
    check_best(case)


@given(cases(uneven=False))
@settings(max_examples=150, deadline=None)
def test_the_same_with_equal_subscriptions(case: Case) -> None:
    check_best(case)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_racks_decide_among_equals(case: Case) -> None:
    check_best(case, racks=True)


@given(cases(capacities=(1, 2, 3, 5)))
@settings(max_examples=150, deadline=None)
def test_capacities_weigh_uneven_subscriptions(case: Case) -> None:
    check_best(case, racks=True)


@given(cases(capacities=(0, 0.5, 1, 2.25), uneven=False))
@settings(max_examples=100, deadline=None)
def test_capacities_give_largest_remainder_quotas(case: Case) -> None:
    if any(m.capacity for m in case.members.values()):
        check_best(case)
