"""What holds for every assignor and every group."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import assignors
from assignors import Assignment, Member, TopicPartition

Racks = dict[TopicPartition, list[str | None]]
TOPICS = ("t", "u", "v", "w")
RACKS = st.sampled_from(("a", "b", "c", "", None))
MEMBER_IDS = st.sampled_from(("", "a", "b", "c", "ab", "é", "\uff5e", "\U0001f600"))
ALL_ALIKE = st.just(1.0)
BUILT_IN = ("range", "roundrobin", "sticky", "cooperative-sticky")

partition_ids = st.sets(st.integers(0, 40), max_size=9)
topic_partitions = st.tuples(st.sampled_from((*TOPICS, "gone")), st.integers(-1, 41))


def member(
    topics: st.SearchStrategy[list[str]], capacities: st.SearchStrategy[float]
) -> st.SearchStrategy[Member]:
    return st.builds(
        Member,
        topics=topics,
        group_instance_id=st.none() | st.sampled_from(("i", "j", "k")),
        owned=st.lists(topic_partitions, max_size=8),
        generation=st.integers(-1, 3),
        rack=RACKS,
        capacity=capacities,
    )


def members(
    topics: st.SearchStrategy[list[str]], capacities: st.SearchStrategy[float] = ALL_ALIKE, min_size: int = 0
) -> st.SearchStrategy[dict[str, Member]]:
    return st.dictionaries(MEMBER_IDS, member(topics, capacities), min_size=min_size, max_size=7)


partitions = st.dictionaries(st.sampled_from(TOPICS), partition_ids)
any_topics = st.lists(st.sampled_from((*TOPICS, "absent")), max_size=5)
any_capacity = st.sampled_from((0, 0.1, 0.5, 1, 1, 2, 3.7, 1e300, 5e-324))
racks = st.none() | st.dictionaries(topic_partitions, st.lists(RACKS, max_size=3))


def check_lawful(partitions: dict[str, set[int]], group: dict[str, Member], assigned: Assignment) -> None:
    """Every partition of a topic with subscribers once, to a subscriber; nothing else."""
    assert assigned.keys() == group.keys()
    wanted = {topic for m in group.values() for topic in m.topics}
    given_out = Counter(tp for tps in assigned.values() for tp in tps)
    assert given_out == Counter(
        (topic, p) for topic, ids in partitions.items() if topic in wanted for p in ids
    )
    for member_id, tps in assigned.items():
        assert {topic for topic, _ in tps} <= set(group[member_id].topics)
        assert tps == sorted(tps)


@pytest.mark.parametrize("name", BUILT_IN)
@given(partitions=partitions, group=members(any_topics, any_capacity), racks=racks)
@settings(max_examples=150, deadline=None)
def test_every_partition_goes_once_to_a_subscriber(
    name: str, partitions: dict[str, set[int]], group: dict[str, Member], racks: Racks | None
) -> None:
    check_lawful(partitions, group, assignors.get(name).assign(partitions, group, racks=racks))


@pytest.mark.parametrize("name", BUILT_IN)
@given(partitions=partitions, group=members(any_topics, any_capacity), racks=racks, data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_order_of_anything_given_changes_nothing(
    name: str,
    partitions: dict[str, set[int]],
    group: dict[str, Member],
    racks: Racks | None,
    data: st.DataObject,
) -> None:
    assignor = assignors.get(name)
    shuffled = {
        member_id: replace(
            group[member_id],
            topics=data.draw(st.permutations(tuple(group[member_id].topics))),
            owned=data.draw(st.permutations(tuple(group[member_id].owned))),
        )
        for member_id in data.draw(st.permutations(list(group)))
    }
    ids = {
        t: data.draw(st.permutations(sorted(partitions[t])))
        for t in data.draw(st.permutations(list(partitions)))
    }
    first = assignor.assign(partitions, group, racks=racks)
    second = assignor.assign(ids, shuffled, racks=racks)
    assert list(first.items()) == list(second.items())


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(partitions=partitions, group=members(st.just(list(TOPICS)), min_size=1), racks=racks)
@settings(max_examples=100, deadline=None)
def test_with_equal_subscriptions_loads_differ_by_one_at_most(
    name: str, partitions: dict[str, set[int]], group: dict[str, Member], racks: Racks | None
) -> None:
    counts = [len(tps) for tps in assignors.get(name).assign(partitions, group, racks=racks).values()]
    assert max(counts) - min(counts) <= 1


@given(partitions=partitions, group=members(st.just(list(TOPICS)), min_size=1), racks=racks)
@settings(max_examples=100, deadline=None)
def test_range_splits_every_topic_evenly(
    partitions: dict[str, set[int]], group: dict[str, Member], racks: Racks | None
) -> None:
    assigned = assignors.get("range").assign(partitions, group, racks=racks)
    for topic in partitions:
        counts = [sum(t == topic for t, _ in tps) for tps in assigned.values()]
        assert max(counts) - min(counts) <= 1


@given(partitions=partitions, group=members(any_topics, any_capacity), racks=racks)
@settings(max_examples=150, deadline=None)
def test_sticky_moves_nothing_when_nothing_changed(
    partitions: dict[str, set[int]], group: dict[str, Member], racks: Racks | None
) -> None:
    sticky = assignors.get("sticky")
    first = sticky.assign(partitions, group, racks=racks)
    again = {m: replace(group[m], owned=tps, generation=9) for m, tps in first.items()}
    assert sticky.assign(partitions, again, racks=racks) == first


@given(partitions=partitions, group=members(any_topics, any_capacity), leaver=st.integers(0, 6))
@settings(max_examples=150, deadline=None)
def test_sticky_with_equal_subscriptions_takes_nothing_from_who_stays_when_one_leaves(
    partitions: dict[str, set[int]], group: dict[str, Member], leaver: int
) -> None:
    sticky = assignors.get("sticky")
    group = {m: replace(member, topics=TOPICS, capacity=1) for m, member in group.items()}
    first = sticky.assign(partitions, group)
    stay = [m for i, m in enumerate(sorted(group)) if i != leaver]
    later = sticky.assign(partitions, {m: replace(group[m], owned=first[m], generation=9) for m in stay})
    for m in stay:
        assert set(first[m]) <= set(later[m])


@given(partitions=partitions, group=members(any_topics), later=members(any_topics), rounds=st.just(3))
@settings(max_examples=150, deadline=None)
def test_cooperative_rebalances_never_share_a_partition_and_settle(
    partitions: dict[str, set[int]], group: dict[str, Member], later: dict[str, Member], rounds: int
) -> None:
    """Members hold what they held and got; a second rebalance hands out what the first one held back."""
    cooperative = assignors.get("cooperative-sticky")
    first = cooperative.assign(partitions, group)
    holding = {m: first.get(m, []) for m in later}
    for generation in range(rounds):
        current = {m: replace(later[m], owned=holding[m], generation=generation) for m in later}
        total = cooperative.assign(partitions, current)
        adjusted = assignors.cooperative_adjust(holding, total)
        during = Counter(tp for m in later for tp in set(holding[m]) | set(adjusted[m]))
        assert all(count == 1 for count in during.values())
        holding = adjusted
    check_lawful(partitions, later, holding)


def random_case(rnd: random.Random) -> tuple[dict[str, list[int]], dict[str, Member]]:
    names = [f"t{i}" for i in range(rnd.randint(1, 4))]
    partitions = {name: rnd.sample(range(12), rnd.randint(0, 7)) for name in names}
    everything = [(name, p) for name in names for p in range(12)]
    uneven = rnd.random() < 0.7
    return partitions, {
        f"m{i}": Member(
            rnd.sample(names, rnd.randint(0, len(names))) if uneven else names,
            owned=rnd.sample(everything, rnd.randint(0, 6)),
            generation=rnd.randint(-1, 2),
        )
        for i in range(rnd.randint(0, 6))
    }


@pytest.mark.parametrize(
    "cases", [2_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_sticky_is_lawful_and_settles_on_many_small_groups(cases: int) -> None:
    rnd = random.Random(34)
    sticky = assignors.get("sticky")
    for _ in range(cases):
        partitions, group = random_case(rnd)
        assigned = sticky.assign(partitions, group)
        check_lawful({t: set(ids) for t, ids in partitions.items()}, group, assigned)
        settled = {m: replace(group[m], owned=tps, generation=3) for m, tps in assigned.items()}
        assert sticky.assign(partitions, settled) == assigned
