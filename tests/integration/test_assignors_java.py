"""Our assignors beside Kafka's own Java classes, on the same random groups."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes.java_answers import JAVA, Answers
from waiting import slow_s

import assignors
from assignors import Assignment, Member, TopicPartition, userdata
from kafka_actors.testing.distribution import DEFAULT_VERSION, Distribution

SOURCE = JAVA / "assignors" / "Oracle.java"


@dataclass
class Group:
    partitions: dict[str, int]
    members: dict[str, Member]
    racks: dict[TopicPartition, list[str | None]] | None = None

    def ids(self) -> dict[str, range]:
        return {topic: range(count) for topic, count in self.partitions.items()}


class Program:
    """The Java program, compiled and started."""

    def __init__(self) -> None:
        kafka = Distribution.get()
        self._classes = tempfile.TemporaryDirectory()
        classpath = os.pathsep.join([self._classes.name, kafka.classpath])
        javac = str(Path(kafka.java).with_name("javac"))
        subprocess.run(
            [javac, "-cp", classpath, "-d", self._classes.name, str(SOURCE)], check=True, timeout=slow_s(120)
        )
        self._java = subprocess.Popen(
            [kafka.java, "-Xshare:auto", "-XX:+UseSerialGC", "-cp", classpath, "Oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def ask(self, lines: str) -> str:
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        self._java.stdin.write(lines)
        self._java.stdin.flush()
        return self._java.stdout.readline().rstrip("\n")

    def close(self) -> None:
        assert self._java.stdin is not None
        self._java.stdin.close()
        self._java.wait(slow_s(10))
        self._classes.cleanup()


class Oracle:
    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._program: Program | None = None

    def close(self) -> None:
        self.answers.close()
        if self._program is not None:
            self._program.close()

    def _ask(self, lines: list[str]) -> str:
        text = "".join(line + "\n" for line in lines)

        def ask() -> str:
            if self._program is None:
                self._program = Program()
            return self._program.ask(text)

        return self.answers.get(text.encode(), ask)

    def assign(self, name: str, group: Group) -> Assignment:
        lines = [
            f"topic\t{topic}\t{count}\t{self._racks(group, topic, count)}"
            for topic, count in group.partitions.items()
        ]
        for member_id, m in group.members.items():
            data = "-"
            if name == "sticky":
                data = userdata.encode_sticky(m.owned, m.generation).hex()
            owned = "-" if name == "sticky" else pairs(m.owned)
            topics = ",".join(m.topics) or "-"
            lines.append(
                f"member\t{member_id}\t{m.group_instance_id or '-'}\t{m.rack or '-'}\t{m.generation}"
                f"\t{topics}\t{owned}\t{data}"
            )
        answer = self._ask([*lines, f"assign\t{name}"])
        assert not answer.startswith("!"), answer
        result: Assignment = {}
        for entry in answer.split("\t"):
            member_id, _, items = entry.rpartition(" ")
            result[member_id] = sorted(
                (item.rpartition(":")[0], int(item.rpartition(":")[2])) for item in items.split(",") if item
            )
        return result

    def userdata(self, name: str, generation: int, owned: list[TopicPartition]) -> bytes:
        return bytes.fromhex(self._ask([f"userdata\t{name}\t{generation}\t{pairs(owned)}"]))

    @staticmethod
    def _racks(group: Group, topic: str, count: int) -> str:
        if group.racks is None:
            return "-"
        return ",".join("|".join(str(r) for r in group.racks[topic, p]) for p in range(count)) or "-"


def pairs(owned: object) -> str:
    return ",".join(f"{topic}:{partition}" for topic, partition in owned) or "-"  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def java() -> Iterator[Oracle]:
    oracle = Oracle(Answers("assignors", SOURCE, DEFAULT_VERSION))
    yield oracle
    oracle.close()


def test_javas_answers_are_of_this_program_and_kafka(java: Oracle) -> None:
    assert not java.answers.is_stale, "make java-answers"


def random_group(rnd: random.Random, *, uneven: bool, racks: bool = False, idle: bool = True) -> Group:
    """With `idle`, some members may subscribe to nothing."""
    topics = {f"t{i}": rnd.choice((0, 1, 2, 3, 5, 8, 13)) for i in range(rnd.randint(1, 6))}
    existing = {topic: count for topic, count in topics.items() if count}
    names = [*topics, "absent"] if rnd.random() < 0.2 else list(topics)
    members = {}
    for i in range(rnd.randint(1, 9)):
        wanted = (
            rnd.sample(names, rnd.randint(0 if idle and rnd.random() < 0.2 else 1, len(names)))
            if uneven
            else names
        )
        members[f"c{rnd.randint(0, 99)}é-{i}"] = Member(
            wanted,
            group_instance_id=f"i{rnd.randint(0, 9)}{i}" if rnd.random() < 0.3 else None,
            rack=rnd.choice(("a", "b", "c", None)) if racks else None,
        )
    where: dict[TopicPartition, list[str | None]] | None = None
    if racks:
        width = rnd.randint(1, 3)
        where = {
            (topic, p): [str(r) for r in rnd.sample("abcd", width)]
            for topic, count in existing.items()
            for p in range(count)
        }
    return Group(existing, members, where)


def changed(rnd: random.Random, group: Group, assigned: Mapping[str, list[TopicPartition]]) -> Group:
    """The group a while later: members come, go and change their mind, topics come, go and grow."""
    members = {
        member_id: replace(m, owned=assigned[member_id], generation=7)
        for member_id, m in group.members.items()
        if rnd.random() < 0.8
    }
    partitions = {
        topic: count + rnd.choice((0, 0, 0, 2))
        for topic, count in group.partitions.items()
        if rnd.random() < 0.9
    }
    names = list(group.partitions) or ["t0"]
    everything = len({m.topics for m in group.members.values()}) == 1
    usual = next(iter(group.members.values())).topics
    for i in range(rnd.randint(0 if members else 1, 3)):
        members[f"new-{i}"] = Member(usual if everything else rnd.sample(names, rnd.randint(1, len(names))))
    if not everything:
        for member_id, m in list(members.items()):
            if rnd.random() < 0.1:
                members[member_id] = replace(m, topics=rnd.sample(names, rnd.randint(1, len(names))))
    return Group(partitions, members)


def spread(assigned: Mapping[str, list[TopicPartition]]) -> int:
    """Java's own measure of imbalance: how far the counts of all pairs of members differ, added up."""
    counts = sorted(len(partitions) for partitions in assigned.values())
    return sum((2 * i + 1 - len(counts)) * count for i, count in enumerate(counts))


def moved(group: Group, assigned: Mapping[str, list[TopicPartition]]) -> int:
    """Partitions that an owner lost although it could have kept them."""
    ids = group.ids()
    return sum(
        len({(t, p) for t, p in m.owned if t in m.topics and p in ids.get(t, ())} - set(assigned[member_id]))
        for member_id, m in group.members.items()
    )


@pytest.mark.parametrize("racks", [False, True], ids=["no racks", "racks"])
@pytest.mark.parametrize("uneven", [False, True], ids=["equal", "uneven"])
def test_range_is_javas(java: Oracle, uneven: bool, racks: bool) -> None:
    rnd = random.Random(f"range {uneven} {racks}")
    for _ in range(600):
        group = random_group(rnd, uneven=uneven, racks=racks)
        ours = assignors.get("range").assign(group.ids(), group.members, racks=group.racks)
        assert ours == java.assign("range", group), group


@pytest.mark.parametrize("uneven", [False, True], ids=["equal", "uneven"])
def test_roundrobin_is_javas(java: Oracle, uneven: bool) -> None:
    rnd = random.Random(f"roundrobin {uneven}")
    for _ in range(600):
        group = random_group(rnd, uneven=uneven)
        assert assignors.get("roundrobin").assign(group.ids(), group.members) == java.assign(
            "roundrobin", group
        )


@pytest.mark.parametrize("uneven", [False, True], ids=["equal", "uneven"])
def test_sticky_is_never_less_balanced_than_java_and_as_balanced_moves_no_more(
    java: Oracle, uneven: bool
) -> None:
    rnd = random.Random(f"sticky {uneven}")
    sticky = assignors.get("sticky")
    for _ in range(400):
        group = random_group(rnd, uneven=uneven, idle=False)
        previous = (sticky.assign(group.ids(), group.members), java.assign("sticky", group))
        assert spread(previous[0]) <= spread(previous[1])
        later = changed(rnd, group, rnd.choice(previous))
        ours = sticky.assign(later.ids(), later.members)
        javas = java.assign("sticky", later)
        assert spread(ours) <= spread(javas), later
        if spread(ours) == spread(javas):
            assert moved(later, ours) <= moved(later, javas), later


@pytest.mark.parametrize("uneven", [False, True], ids=["equal", "uneven"])
def test_cooperative_sticky_keeps_as_much_as_java_while_partitions_are_in_transit(
    java: Oracle, uneven: bool
) -> None:
    rnd = random.Random(f"cooperative {uneven}")
    cooperative = assignors.get("cooperative-sticky")
    for _ in range(400):
        group = random_group(rnd, uneven=uneven, idle=False)
        first = java.assign("cooperative-sticky", group)
        later = changed(rnd, group, first)
        total = cooperative.assign(later.ids(), later.members)
        ours = assignors.cooperative_adjust({m: member.owned for m, member in later.members.items()}, total)
        javas = java.assign("cooperative-sticky", later)
        settled = replace_owned(later, javas)
        final = java.assign("cooperative-sticky", settled)
        assert spread(total) <= spread(final), later
        if spread(total) == spread(final):
            assert moved(later, ours) <= moved(later, javas) + moved(settled, final), later


def replace_owned(group: Group, owned: Assignment) -> Group:
    members = {m: replace(member, owned=owned[m], generation=8) for m, member in group.members.items()}
    return Group(group.partitions, members, group.racks)


@pytest.mark.parametrize("generation", [-1, 0, 2**31 - 1])
def test_user_data_is_javas(java: Oracle, generation: int) -> None:
    owned = [("orders", 0), ("orders", 3), ("über", 1)]
    ours = userdata.encode_sticky(owned, generation)
    javas = java.userdata("sticky", generation, owned)
    assert len(ours) == len(javas)
    held, told = userdata.decode_sticky(javas)
    assert (sorted(held), told) == (owned, generation)
    cooperative = java.userdata("cooperative-sticky", generation, owned)
    assert cooperative == userdata.encode_cooperative_sticky(generation)
    assert userdata.decode_cooperative_sticky(cooperative) == generation


def test_java_reads_our_user_data_and_stays_sticky(java: Oracle) -> None:
    members = {
        "a": Member(["t"], owned=[("t", 3), ("t", 0)], generation=4),
        "b": Member(["t"], owned=[("t", 1), ("t", 2)], generation=4),
    }
    javas = java.assign("sticky", Group({"t": 4}, members))
    assert javas == {"a": [("t", 0), ("t", 3)], "b": [("t", 1), ("t", 2)]}


def test_member_without_topics_gets_nothing_where_javas_sticky_gives_it_half(java: Oracle) -> None:
    # Java takes a subscription to nothing that it meets first for "not seen one yet", and all for equal.
    group = Group({"t": 4}, {"a": Member([]), "b": Member(["t"])})
    assert len(java.assign("sticky", group)["a"]) == 2
    assert assignors.get("sticky").assign(group.ids(), group.members)["a"] == []
