"""Members of a group: who leads, which protocols they share."""

from __future__ import annotations

import pytest
from fakes.fake_members import RawMember, stable_group
from fakes.fake_wire import Wire

from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.group_members import GroupMembers


def members_of(wire: Wire) -> GroupMembers:
    return wire.cluster.groups.groups["g"].members


def three() -> tuple[Wire, GroupMembers, list[RawMember]]:
    wire = Wire()
    raw = stable_group(
        wire,
        *(RawMember(wire, n, instance=i, topics=(n,)) for n, i in [("a", None), ("b", "ib"), ("c", None)]),
    )
    return wire, members_of(wire), raw


def test_the_oldest_member_leads_after_the_leader() -> None:
    _, members, raw = three()
    assert members.leader == raw[0].member_id
    members.remove(raw[0].member_id)
    assert members.leader == next(iter(members)).member_id
    for member in list(members):
        members.remove(member.member_id)
    assert members.leader is None
    assert len(members) == 0


def test_a_member_with_another_id_keeps_what_it_leads() -> None:
    _, members, raw = three()
    leader = members.by_id[raw[0].member_id]
    members.rename(leader, "new")
    assert members.leader == "new"
    assert list(members)[-1].member_id == "new"


@pytest.mark.parametrize(
    ("who", "instance", "generation", "code"),
    [("nobody", None, None, 25), ("b", "none", None, 25), ("a", "ib", None, 82), ("a", None, 99, 22)],
)
def test_members_that_are_no_members(
    who: str, instance: str | None, generation: int | None, code: int
) -> None:
    _, members, raw = three()
    ids = {m.name: m.member_id for m in raw}
    with pytest.raises(Refused) as refused:
        members.check(ids.get(who, who), instance, generation)
    assert refused.value.code == code
    members.check(ids["b"], "ib", members.generation)


def test_the_topics_of_members_are_read_from_their_metadata() -> None:
    _, members, _ = three()
    assert [members.subscribe(topic) for topic in ("a", "b", "d")] == [True, True, False]
    next(iter(members)).protocols = [("range", b"")]
    assert not members.subscribe("d"), "as when the generation began"
    members.begin_generation()
    assert members.subscribe("d"), "it can't be told"
    members.protocol_type = "connect"
    assert not members.subscribe("a")


def test_a_group_that_all_have_left_takes_any_protocol_of_its_type() -> None:
    _, members, _ = three()
    assert not members.supports("consumer", ["other"])
    for member in members:
        members.remove(member.member_id)
    assert members.supports("consumer", ["other"])
    assert not members.supports("connect", ["other"])


def test_what_was_saved_comes_back_without_calls() -> None:
    _, members, raw = three()
    saved = members.saved()
    members.remove(raw[1].member_id)
    members.begin_generation()
    members.restore(saved)
    assert len(members) == 3
    assert members.generation == raw[0].answer.generation_id
    assert members.joined == []
    assert {m.assignment for m in members} == {b"a", b"b", b"c"}
