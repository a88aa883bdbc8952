"""Topics that are deleted and made anew while they are owned."""

from __future__ import annotations

from kafka_actors.coordinator.machines.steps import Assigned, Lost
from kafka_actors.coordinator.machines.topic_ids import TopicIds, without


def test_theme_17_another_id_is_told_once(tp):
    ids, owned = TopicIds(), tp("t-0", "t-1", "u-0")
    assert ids.changed(owned, {"t": b"1", "u": b"1"}) == frozenset()
    assert ids.changed(owned, {"t": b"2", "u": b"1"}) == tp("t-0", "t-1")
    assert ids.changed(owned, {"t": b"2", "u": b"1"}) == frozenset()


def test_theme_17_an_unknown_id_is_no_other_id(tp):
    ids, owned = TopicIds(), tp("t-0")
    for known in (None, b"1", None, b"1"):
        assert ids.changed(owned, {"t": known}) == frozenset()
    assert ids.changed(owned, {"t": b"2"}) == owned


def test_ids_are_forgotten_with_the_partitions(tp):
    ids = TopicIds()
    ids.changed(tp("t-0"), {"t": b"1"})
    ids.changed(frozenset(), {})
    assert ids.changed(tp("t-0"), {"t": b"2"}) == frozenset()


def test_what_is_gone_is_left_out_as_long_as_it_is_owned(tp):
    gone = set(tp("t-0"))
    assert without(tp("t-0", "t-1"), gone) == tp("t-1")
    assert without(tp("t-1"), gone) == tp("t-1")
    assert without(tp("t-0", "t-1"), gone) == tp("t-0", "t-1")


def test_theme_17_partitions_made_anew_are_lost_and_assigned_again(dialogue, tp):
    d = dialogue()
    d.stable("t-0", "t-1")
    d.take(Assigned)
    d.member.start_over(tp("t-1", "u-0"), "made anew")
    assert d.poll() == []
    assert d.take(Lost) == [Lost(tp("t-1"), "made anew")]
    assert d.take(Assigned) == [Assigned(1, tp("t-1"), tp("t-0", "t-1"))]
    assert d.ownership.owned() == tp("t-0", "t-1")
