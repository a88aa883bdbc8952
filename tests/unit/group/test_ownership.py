"""Partitions that a consumer takes over and gives up, and times at which it asks the group to rebalance."""

from __future__ import annotations

import pytest

import assignors
from kafka_actors.group.machines.assignment import (
    TopicsView,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafka_actors.group.machines.member_events import Generation
from kafka_actors.group.machines.ownership import Ownership, has_mixed_protocols
from kafka_actors.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

VIEW = TopicsView({"t": (0, 1, 2, 3), "u": (0,)})
CHANGED = "partitions of subscribed topics have changed"
GROWN = "partitions have changed since this static member was last here"


def ownership_of(*strategies, subscribed=("t",), view=VIEW, **more):
    made = Ownership([assignors.get(s) for s in strategies or ("cooperative-sticky",)], **more)
    assert made.on_metadata(frozenset(subscribed), view) is None
    return made


def rebalanced(ownership, generation, *partitions, tp, leader=False, members=()):
    """Leads through a rebalance; returns what changes."""
    now = Generation(generation, "m", "x")
    ownership.protocols()
    ownership.on_joined(now, leader, members)
    return ownership.on_synced(now, encode_assignment(tp(*partitions)))


def said(ownership):
    """Returns the partitions that the member claims, and the generation since which it does."""
    ((_, metadata), *_) = ownership.metadata()
    read = decode_subscription(metadata)
    return {f"{t.topic}-{n}" for t in read.owned_partitions for n in t.partitions}, read.generation_id


def test_each_incarnation_of_a_member_joins_with_metadata_that_no_other_has_had(tp):
    """A follower that joins again with the same metadata is handed the generation that there is."""
    first, second, third = (ownership_of("range", incarnation=n) for n in (1, 2, 3))
    joins = [first.metadata(), second.metadata(), third.metadata()]
    assert [said(o) for o in (first, second, third)] == [(set(), -1), (set(), -2), (set(), -3)]
    assert ownership_of("range").metadata() == joins[0]
    rebalanced(second, 7, "t-0", tp=tp)
    second.lose()
    assert second.metadata() == joins[1]


# ---------------------------------------------------------------- taking over and giving up


def test_a_cooperative_member_keeps_what_it_has_until_the_group_gives_it_to_others(tp):
    ownership = ownership_of()
    assert rebalanced(ownership, 1, "t-0", "t-1", tp=tp).added == tp("t-0", "t-1")
    assert ownership.before_join() == frozenset()
    assert said(ownership) == ({"t-0", "t-1"}, 1)

    change = rebalanced(ownership, 2, "t-1", "t-2", tp=tp)

    assert (change.added, change.revoked, change.rejoin) == (tp("t-2"), tp("t-0"), None)
    assert ownership.owned() == tp("t-1", "t-2")
    assert ownership.releasing == tp("t-0")
    ownership.released(tp("t-0"))
    assert ownership.releasing == frozenset()


def test_an_eager_member_gives_everything_up_before_it_joins(tp):
    ownership = ownership_of("range")
    rebalanced(ownership, 1, "t-0", "t-1", tp=tp)

    assert ownership.before_join() == tp("t-0", "t-1")

    assert (ownership.owned(), ownership.releasing) == (frozenset(), tp("t-0", "t-1"))
    ownership.released(tp("t-0", "t-1"))
    assert rebalanced(ownership, 2, "t-1", tp=tp).added == tp("t-1"), "taken over anew"


def test_a_cooperative_member_gives_up_before_it_joins_what_it_no_longer_subscribes_to(tp):
    ownership = ownership_of(subscribed=("t", "u"))
    rebalanced(ownership, 1, "t-0", "u-0", tp=tp)
    assert ownership.on_metadata(frozenset({"t"}), VIEW) == "the subscription has changed"

    assert ownership.before_join() == tp("u-0")
    assert ownership.owned() == tp("t-0")


def test_a_lost_membership_takes_what_is_owned_and_what_is_being_released_and_claims_nothing_after(tp):
    ownership = ownership_of()
    rebalanced(ownership, 1, "t-0", "t-1", tp=tp)
    rebalanced(ownership, 2, "t-1", tp=tp)

    assert ownership.lose() == tp("t-0", "t-1")

    assert (ownership.owned(), ownership.releasing) == (frozenset(), frozenset())
    assert said(ownership) == (set(), -1)
    assert ownership.lose() == frozenset()


def test_an_assignment_of_what_is_no_longer_subscribed_to_changes_nothing_and_has_the_group_rebalance(tp):
    ownership = ownership_of(subscribed=("t", "u"))
    rebalanced(ownership, 1, "t-0", tp=tp)
    ownership.protocols()
    ownership.on_joined(Generation(2, "m", "x"), False, ())
    ownership.on_metadata(frozenset({"t"}), VIEW)

    change = ownership.on_synced(Generation(2, "m", "x"), encode_assignment(tp("t-1", "u-0")))

    assert change.rejoin == "assigned u, which is not subscribed to"
    assert (change.added, change.revoked, ownership.owned()) == (frozenset(), frozenset(), tp("t-0"))
    assert said(ownership) == ({"t-0"}, 2), "an older claim would not count for a leader"


# ---------------------------------------------------------------- when the group should rebalance


def test_a_new_subscription_is_a_reason_to_rebalance_only_after_a_join():
    ownership = ownership_of()
    assert ownership.on_metadata(frozenset({"t", "u"}), VIEW) is None, "the first join will say it"
    ownership.protocols()
    assert ownership.on_metadata(frozenset({"t", "u"}), VIEW) is None
    assert ownership.on_metadata(frozenset({"u"}), VIEW) == "the subscription has changed"


def test_a_leader_watches_the_topics_of_all_members_and_a_follower_none(tp):
    other = JoinGroupResponseMember(
        member_id="o",
        metadata=encode_subscription(assignors.get("cooperative-sticky"), ["u"], tp(), -1, tp(), None),
    )
    grown = TopicsView({"t": (0, 1, 2, 3), "u": (0, 1)})
    ownership = ownership_of()
    rebalanced(ownership, 1, "t-0", tp=tp, leader=True, members=(other,))
    assert ownership.group_topics == {"t", "u"}
    assert not ownership.watching
    ownership.watch(VIEW.only(("t", "u")))
    assert ownership.watching
    assert ownership.on_metadata(frozenset({"t"}), VIEW) is None
    assert ownership.on_metadata(frozenset({"t"}), grown) == CHANGED

    rebalanced(ownership, 2, "t-0", tp=tp)

    assert ownership.group_topics == {"t"}
    assert ownership.on_metadata(frozenset({"t"}), grown) is None


def test_the_rack_is_said_to_the_group():
    ((_, metadata),) = ownership_of(rack="rack-1").metadata()
    assert decode_subscription(metadata).rack_id == "rack-1"


# ---------------------------------------------------------------- a static member that comes back


def described(tp, topics=("t",), assigned=("t-0", "t-1", "t-2", "t-3"), instance="i", metadata=None):
    """The group before this member came back, as DescribeGroups tells it."""
    made = encode_subscription(assignors.get("range"), list(topics), tp(), -1, tp(), None)
    one = DescribedGroupMember(
        member_id="x",
        group_instance_id=instance,
        member_metadata=made if metadata is None else metadata,
        member_assignment=encode_assignment(tp(*assigned)),
    )
    return DescribedGroup(group_id="g", group_state="Stable", protocol_data="range", members=[one])


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ({}, None),
        ({"topics": ("t", "u")}, "the subscription has changed since this static member was last here"),
        ({"assigned": ("t-0", "t-1")}, GROWN),
        ({"assigned": ("t-0", "t-1", "t-2", "t-3", "gone-0")}, None),
        ({"instance": "another", "topics": ("t", "u")}, None),
        ({"topics": ("t", "u"), "metadata": b"\x00\x00\xff"}, None),
    ],
    ids=["the same", "other topics", "new partitions", "topics of others", "not there", "can't be read"],
)
def test_what_a_static_member_is_handed_back_is_compared_with_what_there_is_now(tp, before, reason):
    ownership = ownership_of("range", group_instance_id="i")
    ownership.on_described(described(tp, **before))

    assert rebalanced(ownership, 3, "t-0", "t-1", tp=tp).rejoin == reason

    assert rebalanced(ownership, 4, "t-0", "t-1", tp=tp).rejoin is None, "it is compared once"


def test_one_that_has_no_partitions_compares_too(tp):
    """It may be the leader of a group of more members than partitions: nobody else looks."""
    ownership = ownership_of("range", group_instance_id="i")
    ownership.on_described(described(tp, assigned=("t-0", "t-1")))
    assert rebalanced(ownership, 3, tp=tp).rejoin == GROWN


def test_a_dynamic_member_compares_nothing(tp):
    """Other dynamic members have no instance id either."""
    ownership = ownership_of("range")
    ownership.on_described(described(tp, topics=("t", "u"), instance=None))
    assert rebalanced(ownership, 3, "t-0", tp=tp).rejoin is None


def test_a_leader_that_has_computed_the_assignment_anew_compares_nothing(tp):
    ownership = ownership_of("range", group_instance_id="i")
    ownership.on_described(described(tp, topics=("t", "u")))
    ownership.protocols()
    ownership.on_joined(Generation(3, "m", "range"), True, ())
    ownership.watch(VIEW.only(("t",)))
    assert ownership.on_synced(Generation(3, "m", "range"), encode_assignment(tp("t-0"))).rejoin is None


@pytest.mark.parametrize(
    ("strategies", "mode", "mixed"),
    [
        (["cooperative-sticky"], "cooperative", False),
        (["range"], "eager", False),
        (["cooperative-sticky", "range"], "eager", True),
    ],
)
def test_a_list_with_an_eager_strategy_is_eager(strategies, mode, mixed):
    used = [assignors.get(s) for s in strategies]
    assert Ownership(used).mode == mode
    assert has_mixed_protocols(used) == mixed


class WithUserData:
    """An assignor with data of its own in the subscription."""

    name = "custom"
    protocol = "eager"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def subscription_user_data(self, topics):
        return self.data

    def assign(self, partitions, members, *, racks=None):
        return assignors.get("range").assign(partitions, members)


def test_static_member_whose_assignor_says_something_else_has_the_group_rebalance(tp):
    def came_back(now: bytes) -> str | None:
        before = encode_subscription(WithUserData(b"old"), ["t"], tp(), -1, tp(), None)
        one = DescribedGroupMember(
            member_id="x",
            group_instance_id="i",
            member_metadata=before,
            member_assignment=encode_assignment(tp("t-0", "t-1", "t-2", "t-3")),
        )
        ownership = Ownership([WithUserData(now)], group_instance_id="i")
        ownership.on_metadata(frozenset({"t"}), VIEW)
        ownership.on_described(
            DescribedGroup(group_id="g", group_state="Stable", protocol_data="custom", members=[one])
        )
        ownership.protocols()
        ownership.on_joined(Generation(3, "m", "custom"), False, ())
        return ownership.on_synced(Generation(3, "m", "custom"), one.member_assignment).rejoin

    assert came_back(b"old") is None
    assert came_back(b"new") == "the assignor's data has changed since this static member was last here"


@pytest.mark.parametrize("partitions", [4, 5])
def test_partitions_that_come_before_a_returned_leader_watches_have_the_group_rebalance(tp, partitions):
    """It was handed what it had before (KIP-814), which was looked at with older metadata."""
    metadata = encode_subscription(assignors.get("range"), ["t"], tp(), -1, tp(), None)
    one = DescribedGroupMember(
        member_id="x",
        group_instance_id="i",
        member_metadata=metadata,
        member_assignment=encode_assignment(tp("t-0", "t-1", "t-2", "t-3")),
    )
    ownership = Ownership([assignors.get("range")], group_instance_id="i")
    ownership.on_metadata(frozenset({"t"}), VIEW)
    ownership.on_described(
        DescribedGroup(group_id="g", group_state="Stable", protocol_data="range", members=[one])
    )
    ownership.protocols()
    ownership.on_joined(Generation(3, "m", "range"), True, ())
    assert ownership.on_synced(Generation(3, "m", "range"), one.member_assignment).rejoin is None
    later = TopicsView({"t": tuple(range(partitions))})
    grown = "partitions have changed since this static member was last here"
    assert ownership.watch_again(later) == (grown if partitions > 4 else None)
    assert ownership.on_metadata(frozenset({"t"}), later) is None
