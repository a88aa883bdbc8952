"""One group of the classic protocol: rebalances, sessions, static members."""

from __future__ import annotations

import pytest
from fakes.fake_members import REBALANCE_MS, SESSION_MS, RawMember, stable_group
from fakes.fake_wire import Wire

from kafka_actors import errors
from kafka_actors.testing.fake_kafka.machines.classic_group import ClassicGroup

REBALANCING, UNKNOWN, ILLEGAL, FENCED = 27, 25, 22, 82


def group_of(wire: Wire) -> ClassicGroup:
    return wire.cluster.groups.groups["g"]


def test_a_first_member_is_asked_for_its_id_and_leads_the_first_generation() -> None:
    wire = Wire(topics={"t": 1})
    member = RawMember(wire, "one")
    joined = member.join()
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, member.member_id, "range")
    assert [m.member_id for m in joined.members] == [member.member_id]
    assert group_of(wire).state == "CompletingRebalance"
    assert member.sync(**{member.member_id: b"mine"}).assignment == b"mine"
    assert group_of(wire).state == "Stable"
    assert member.heartbeat() == 0


def test_before_version_4_no_member_id_is_asked_for() -> None:
    wire = Wire()
    assert RawMember(wire, "one").join(version=3).error_code == 0


def test_the_initial_delay_lets_others_come() -> None:
    wire = Wire(config={"group.initial.rebalance.delay.ms": 3_000})
    one, two = RawMember(wire, "one"), RawMember(wire, "two")
    assert one.join() is None
    wire.pass_time(2.0)
    assert two.join() is None
    wire.pass_time(1.5)
    assert one.joined() is None, "another one came: it waits once more"
    wire.pass_time(3.0)
    assert one.joined().generation_id == two.joined().generation_id == 1
    assert len(one.answer.members) == 2


def test_a_second_member_begins_a_rebalance_which_waits_for_the_first() -> None:
    wire = Wire()
    (one,) = stable_group(wire, RawMember(wire, "one"))
    two = RawMember(wire, "two")
    assert two.join() is None
    assert group_of(wire).state == "PreparingRebalance"
    assert one.heartbeat() == REBALANCING
    assert one.sync().error_code == REBALANCING
    assert one.join().generation_id == 2
    assert two.joined().generation_id == 2
    assert two.answer.members == []
    assert two.sync() is None, "until the leader has synced"
    one.sync(**{two.member_id: b"two's"})
    assert wire.take("two").assignment == b"two's"


def test_who_does_not_rejoin_within_the_rebalance_timeout_is_out() -> None:
    wire = Wire()
    one, _ = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    one.join()
    waited = 0.0
    while waited < REBALANCE_MS / 1000:  # the other one heartbeats, and does not join
        for member in group_of(wire).members:
            if member.join is None:
                group_of(wire).heartbeat(member.member_id, None, 2)
        wire.pass_time(5.0)
        waited += 5.0
    assert len(one.joined().members) == 1


def test_a_session_ends_without_heartbeats_but_not_while_a_join_waits() -> None:
    wire = Wire()
    one, two = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    for _ in range(3):
        wire.pass_time(SESSION_MS / 1000 - 1)
        assert one.heartbeat() in (0, REBALANCING)
    assert group_of(wire).state == "PreparingRebalance"
    assert one.join().generation_id == one.answer.generation_id
    assert two.heartbeat() == UNKNOWN
    three = RawMember(wire, "three")
    three.join()
    wire.pass_time(SESSION_MS / 1000 * 3)
    assert three.joined() is not None, "the first one's session has ended, the new member's join waits longer"


def test_a_member_id_that_is_never_used_holds_up_a_rebalance_until_its_session_ends() -> None:
    wire = Wire()
    (one,) = stable_group(wire, RawMember(wire, "one"))
    lazy = RawMember(wire, "lazy")
    lazy.ask_for_id()
    two = RawMember(wire, "two")
    assert two.join() is None
    assert one.join() is None, "three are waited for"
    wire.pass_time(SESSION_MS / 1000 + 0.1)
    assert len(one.joined().members) == 2
    lazy.ask_for_id()
    assert lazy.leave() == 0, "it may also leave"


def test_leaving_begins_a_rebalance_and_the_last_one_leaves_an_empty_group() -> None:
    wire = Wire()
    one, two = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    assert two.leave() == 0
    assert two.leave() == UNKNOWN
    assert one.heartbeat() == REBALANCING
    assert one.leave() == 0
    assert group_of(wire).state == "Empty"
    assert group_of(wire).members.generation == 3


def test_followers_rejoin_without_a_rebalance_and_the_leader_with_one() -> None:
    wire = Wire()
    leader, follower = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    generation = leader.answer.generation_id
    assert follower.join().generation_id == generation
    assert group_of(wire).state == "Stable"
    follower.topics = ("other",)
    assert follower.join() is None, "with other metadata"
    assert leader.join().generation_id == generation + 1


def test_who_waits_in_sync_hears_of_the_next_rebalance() -> None:
    wire = Wire()
    one, two = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    one.join()
    two.join()
    one.joined()
    two.joined()
    follower, leader = (one, two) if one.answer.leader == two.member_id else (two, one)
    assert follower.sync() is None
    assert leader.leave() == 0
    assert wire.take(follower.name).error_code == REBALANCING


def test_who_does_not_sync_in_time_is_out() -> None:
    wire = Wire()
    member = RawMember(wire, "one")
    member.join()
    for _ in range(REBALANCE_MS // 5_000):
        assert member.heartbeat() == 0
        wire.pass_time(5.0)
    assert member.heartbeat() == UNKNOWN
    assert group_of(wire).state == "Empty"


def test_protocols_need_something_in_common_and_votes_decide() -> None:
    wire = Wire()
    one, two, three = (RawMember(wire, n) for n in ("one", "two", "three"))
    one.join("range", "sticky")
    two.join("sticky", "range")
    assert three.join("other").error_code == errors.InconsistentGroupProtocolError.code
    assert three.join("range", protocol_type="connect").error_code == 23
    three.join("sticky", "range")
    one.join("range", "sticky")
    assert {m.joined().protocol_name for m in (two, three)} == {"sticky"}


def test_wrong_generations_and_protocols() -> None:
    wire = Wire()
    (one,) = stable_group(wire, RawMember(wire, "one"))
    assert one.heartbeat(generation=7) == ILLEGAL
    one.answer = type(one.answer)(generation_id=1, protocol_name="sticky")
    assert one.sync().error_code == 23


def test_a_static_member_that_comes_back_keeps_its_assignment_and_fences_the_old_one() -> None:
    wire = Wire()
    one, two = stable_group(wire, RawMember(wire, "one", instance="i1"), RawMember(wire, "two"))
    again = RawMember(wire, "again", instance="i1")
    joined = again.join()
    assert joined.error_code == 0
    assert joined.generation_id == two.answer.generation_id
    assert again.member_id != one.member_id
    assert one.heartbeat() == FENCED
    assert again.sync().assignment == b"one"
    assert group_of(wire).state == "Stable"
    assert joined.skip_assignment == (joined.leader == again.member_id), "KIP-814"


@pytest.mark.parametrize("version", [8, 9])
def test_only_from_version_9_on_a_static_leader_hears_that_it_leads(version: int) -> None:
    wire = Wire()
    (one,) = stable_group(wire, RawMember(wire, "one", instance="i1"))
    old_id = one.member_id
    again = RawMember(wire, "again", instance="i1")
    joined = again.join(version=version)
    assert (joined.leader == again.member_id) == (version == 9)
    assert (joined.leader == old_id) == (version == 8)


def test_a_static_member_that_is_away_holds_up_a_rebalance_and_stays() -> None:
    wire = Wire()
    (one,) = stable_group(wire, RawMember(wire, "one", instance="i1"))
    two = RawMember(wire, "two")
    assert two.join() is None
    for _ in range(13):
        one.heartbeat()
        wire.pass_time(5.0)
    assert two.joined().leader == two.member_id
    assert len(two.answer.members) == 2


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    wire = Wire()
    stable_group(wire, RawMember(wire, "one", instance="i1"))
    assert RawMember(wire, "admin", instance="i1").leave() == 0
    assert RawMember(wire, "admin", instance="none").leave() == UNKNOWN
    assert group_of(wire).state == "Empty"


def test_a_full_group_takes_nobody_else() -> None:
    wire = Wire(config={"group.max.size": 1})
    stable_group(wire, RawMember(wire, "one"))
    assert RawMember(wire, "two").join().error_code == errors.GroupMaxSizeReachedError.code


def test_another_coordinator_goes_on_with_what_was_written_down() -> None:
    wire = Wire(2)
    wire.state.offsets_topic.move("g", 1)
    one, two = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    generation = one.answer.generation_id
    assert one.join() is None
    wire.state.offsets_topic.move("g", 2)
    wire.poll()
    assert one.joined().error_code == errors.NotCoordinatorError.code
    group = group_of(wire)
    assert (group.state, group.members.generation, len(group.members)) == ("Stable", generation, 2)
    assert two.heartbeat() == errors.NotCoordinatorError.code
    assert group.heartbeat(two.member_id, None, generation) == 0
    wire.pass_time(SESSION_MS / 1000 + 1)
    assert group.state == "Empty", "sessions began anew, and ended"


def test_no_session_ends_while_no_broker_is_alive() -> None:
    wire = Wire(topics={"t": 1})
    one, two = stable_group(wire, RawMember(wire, "one"), RawMember(wire, "two"))
    generation = one.answer.generation_id
    assert one.join() is None
    wire.cluster.stop_node(1)
    wire.pass_time(3 * SESSION_MS / 1000)
    assert wire.poll() is None, "no timer outlives the brokers"
    wire.state.set_alive(1, True)
    wire.poll()
    group = group_of(wire)
    assert (group.state, group.members.generation, len(group.members)) == ("Stable", generation, 2)
    wire.pass_time(SESSION_MS / 1000 - 1)
    assert group.heartbeat(two.member_id, None, generation) == 0
    wire.pass_time(2)
    assert (group.state, len(group.members)) == ("PreparingRebalance", 1), (
        "one's session began with the broker"
    )
