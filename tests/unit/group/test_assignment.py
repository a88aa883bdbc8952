"""The leader's part, and what a member says of itself."""

from __future__ import annotations

import pytest

import assignors
from assignors import userdata
from kafka_actors.errors import DecodeError, InconsistentGroupProtocolError
from kafka_actors.group.machines.assignment import (
    TopicsView,
    choose,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    group_topics,
    perform_assignment,
)
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

VIEW = TopicsView({"t": (0, 1, 2, 3), "u": (0,)})


def member(name, strategy, topics=("t",), owned=(), generation=-1, tp=None):
    metadata = encode_subscription(
        assignors.get(strategy), list(topics), tp(*owned), generation, tp(*owned), None
    )
    return JoinGroupResponseMember(member_id=name, metadata=metadata)


def handed(result):
    return {
        a.member_id: {f"{t.topic}-{t.partition}" for t in decode_assignment(a.assignment)}
        for a in result.assignments
    }


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_everybody_gets_a_part_and_only_of_what_they_subscribe_to(tp, strategy):
    members = [member("a", strategy, ("t", "u"), tp=tp), member("b", strategy, tp=tp)]
    result = perform_assignment(assignors.get(strategy), members, VIEW)
    parts = handed(result)
    assert parts["a"] | parts["b"] == {"t-0", "t-1", "t-2", "t-3", "u-0"}
    assert not parts["a"] & parts["b"]
    assert "u-0" in parts["a"]
    assert result.watched == VIEW.partitions


def test_cooperative_leader_withholds_what_another_still_owns(tp):
    members = [
        member("a", "cooperative-sticky", owned=("t-0", "t-1", "t-2", "t-3"), generation=4, tp=tp),
        member("b", "cooperative-sticky", tp=tp),
    ]
    parts = handed(perform_assignment(assignors.get("cooperative-sticky"), members, VIEW))
    assert len(parts["a"]) == 2
    assert parts["b"] == set()


def test_eager_leader_gives_everything_at_once(tp):
    members = [
        member("a", "sticky", owned=("t-0", "t-1", "t-2", "t-3"), generation=4, tp=tp),
        member("b", "sticky", tp=tp),
    ]
    parts = handed(perform_assignment(assignors.get("sticky"), members, VIEW))
    assert [len(parts["a"]), len(parts["b"])] == [2, 2]


def test_stale_claim_does_not_hold_up_the_right_owner(tp):
    members = [
        member("a", "cooperative-sticky", owned=("t-0", "t-1"), generation=3, tp=tp),
        member("b", "cooperative-sticky", owned=("t-0", "t-1", "t-2", "t-3"), generation=4, tp=tp),
    ]
    parts = handed(perform_assignment(assignors.get("cooperative-sticky"), members, VIEW))
    assert parts["b"]
    assert not parts["a"] & {"t-0", "t-1", "t-2", "t-3"} & parts["b"]


def test_member_that_can_not_be_read_gets_nothing_and_is_named(tp):
    members = [member("a", "range", tp=tp), JoinGroupResponseMember(member_id="bad", metadata=b"\x00")]
    result = perform_assignment(assignors.get("range"), members, VIEW)
    assert handed(result) == {"a": {"t-0", "t-1", "t-2", "t-3"}, "bad": set()}
    assert result.unreadable == ("bad",)
    assert group_topics(members) == {"t"}


def test_topics_that_do_not_exist_are_left_out(tp):
    result = perform_assignment(assignors.get("range"), [member("a", "range", ("t", "gone"), tp=tp)], VIEW)
    assert set(result.watched) == {"t"}


def test_subscription_says_what_is_owned_and_since_when(tp):
    data = encode_subscription(assignors.get("range"), ["t"], tp("t-1", "t-0"), 7, tp("t-0"), "rack-1")
    read = decode_subscription(data)
    assert (read.topics, read.generation_id, read.rack_id, read.user_data) == (["t"], 7, "rack-1", None)
    assert [(t.topic, t.partitions) for t in read.owned_partitions] == [("t", [0, 1])]


def test_sticky_tells_its_last_assignment_although_it_gave_it_up(tp):
    data = encode_subscription(assignors.get("sticky"), ["t"], tp(), 7, tp("t-0", "t-2"), None)
    assert userdata.decode_sticky(decode_subscription(data).user_data) == ([("t", 0), ("t", 2)], 7)


def test_assignment_round_trip_and_what_is_none(tp):
    assert decode_assignment(encode_assignment(tp("t-3", "t-1"))) == tp("t-1", "t-3")
    assert decode_assignment(b"") == frozenset()
    with pytest.raises(DecodeError):
        decode_assignment(b"\x00\x00\xff")


def test_strategy_that_was_not_offered_is_an_error():
    with pytest.raises(InconsistentGroupProtocolError, match="'sticky'"):
        choose([assignors.get("range")], "sticky", "g")
