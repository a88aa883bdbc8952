"""Seconds that each assignor takes for a big group: by default 1,000 members and 100,000 partitions.

    python benchmarks/bench_assignors.py [--members 1000] [--partitions 100000] [--seed 1]

Each group is assigned afresh, and once more after a tenth of the members left and as many came ("changed"),
when the sticky ones start from what is owned. `moved` are partitions taken from a member that could have
kept them; `loads` is the smallest and the largest number of partitions of one member.

Not named after the package: a script's folder comes first on the path, so that would hide it from every benchmark.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import assignors
from assignors import Assignment, Member, TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


@dataclass
class Group:
    label: str
    partitions: dict[str, range]
    members: dict[str, Member]
    racks: dict[TopicPartition, list[str | None]] | None = None


def even(topics: int, partitions: int) -> dict[str, range]:
    return {f"topic-{i:05}": range(partitions // topics) for i in range(topics)}


def groups(members: int, partitions: int, rnd: random.Random) -> Iterator[Group]:
    few, many = even(100, partitions), even(1000, partitions)
    names = [f"member-{i:05}" for i in range(members)]
    yield Group("equal, 100 topics", few, {m: Member(few) for m in names})
    yield Group("equal, 1 topic", {"t": range(partitions)}, {m: Member(["t"]) for m in names})
    weighed = {m: Member(few, capacity=rnd.choice((1, 2, 4))) for m in names}
    yield Group("equal, capacities", few, weighed)
    racks: dict[TopicPartition, list[str | None]] = {
        (t, p): [f"rack-{r}" for r in rnd.sample(range(6), 3)] for t, ids in few.items() for p in ids
    }
    placed = {m: Member(few, rack=f"rack-{rnd.randrange(6)}") for m in names}
    yield Group("equal, 6 racks", few, placed, racks)
    yield Group("half of 100 topics", few, {m: Member(rnd.sample(list(few), 50)) for m in names})
    yield Group("half of 1,000 topics", many, {m: Member(rnd.sample(list(many), 500)) for m in names})
    yield Group("3 of 1,000 topics", many, {m: Member(rnd.sample(list(many), 3)) for m in names})
    steep = {t: range(rnd.choice((1, 10, partitions // 500))) for t in many}
    yield Group("3 of 1,000 uneven topics", steep, {m: Member(rnd.sample(list(many), 3)) for m in names})
    chain = {t: range(2 * partitions // 1000 * (i % 2)) for i, t in enumerate(many)}
    order = list(many)
    linked = {
        m: Member([order[i % 1000], order[(i + 1) % 1000], order[(i + 2) % 1000]])
        for i, m in enumerate(names)
    }
    yield Group("a chain of topics", chain, linked)


def changed(group: Group, assigned: Assignment, rnd: random.Random) -> Group:
    """A tenth of the members gone, as many new ones with the subscriptions of others."""
    kinds = list(group.members.values())
    stay = [m for m in group.members if rnd.random() > 0.1]
    members = {m: replace(group.members[m], owned=assigned[m], generation=1) for m in stay}
    for i in range(len(kinds) - len(stay)):
        members[f"new-{i:05}"] = replace(rnd.choice(kinds), owned=())
    return Group(group.label + ", changed", group.partitions, members, group.racks)


def measure(name: str, group: Group) -> Assignment:
    start = time.perf_counter()
    assigned = assignors.get(name).assign(group.partitions, group.members, racks=group.racks)
    seconds = time.perf_counter() - start
    loads = [len(partitions) for partitions in assigned.values()]
    moved = sum(len(set(m.owned) - set(assigned[member_id])) for member_id, m in group.members.items())
    print(f"{group.label:36} {name:20} {seconds:8.2f} {min(loads):6}-{max(loads):<6} {moved:8}", flush=True)
    return assigned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rnd = random.Random(options.seed)
    print(f"{options.members:,} members, {options.partitions:,} partitions")
    print(f"{'group':36} {'assignor':20} {'seconds':>8} {'loads':^13} {'moved':>8}")
    for group in groups(options.members, options.partitions, rnd):
        for name in NAMES:
            assigned = measure(name, group)
        later = changed(group, assigned, rnd)
        for name in NAMES[2:]:
            measure(name, later)


if __name__ == "__main__":
    main()
