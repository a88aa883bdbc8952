"""Topics that are deleted and made anew while they are owned."""

from __future__ import annotations

import pytest

from kafka_actors.group.commit_metadata import pack
from kafka_actors.group.machines.member_events import LosePartitions, TakePartitions
from kafka_actors.group.machines.topic_ids import (
    CommittedStart,
    TopicIds,
    as_committed,
    committed_starts,
    of_this_cluster,
    outdated,
    without,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition


def test_another_id_is_told_once(tp):
    ids, owned = TopicIds(), tp("t-0", "t-1", "u-0")
    assert ids.changed(owned, {"t": b"1", "u": b"1"}) == frozenset()
    assert ids.changed(owned, {"t": b"2", "u": b"1"}) == tp("t-0", "t-1")
    assert ids.changed(owned, {"t": b"2", "u": b"1"}) == frozenset()


def test_an_unknown_id_is_no_other_id(tp):
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


def test_partitions_made_anew_are_lost_and_assigned_again(dialogue, tp):
    d = dialogue()
    d.stable("t-0", "t-1")
    d.take(TakePartitions)
    d.member.start_over(tp("t-1", "u-0"), "made anew")
    assert d.poll() == []
    assert d.take(LosePartitions) == [LosePartitions(tp("t-1"), "made anew")]
    assert d.take(TakePartitions) == [TakePartitions(1, tp("t-1"), tp("t-0", "t-1"))]
    assert d.ownership.owned() == tp("t-0", "t-1")


def test_what_was_consumed_first_outlives_revocations(tp):
    ids = TopicIds()
    assert ids.first("t") is None
    ids.changed(tp("t-0"), {"t": b"1"})
    ids.changed(frozenset(), {})
    ids.changed(tp("t-0"), {"t": b"2"})
    assert ids.first("t") == b"1"
    assert ids.of_owned("t") == b"2"


OLD, NEW = b"o" * 16, b"n" * 16


def origin_of(committed, *, consumed=None, now=NEW, fatal=False, others=None):
    (t0,) = partitions = frozenset({TopicPartition("t", 0)})
    ids = TopicIds()
    ids.changed(partitions, {"t": consumed})
    found = {t0: committed, **(others or {})}
    return committed_starts(partitions, found, {"t": now}, ids, loss_is_fatal=fatal)[t0]


def committed(topic_id, text=""):
    return OffsetAndMetadata(5, pack(text, topic_id), 2)


@pytest.mark.parametrize("fatal", [False, True])
@pytest.mark.parametrize("consumed", [None, OLD, NEW])
def test_a_commit_that_names_the_topic_as_it_is_counts(fatal, consumed):
    assert origin_of(committed(NEW), consumed=consumed, fatal=fatal) == CommittedStart(5, 2, NEW, True)


@pytest.mark.parametrize("fatal", [False, True])
@pytest.mark.parametrize("consumed", [None, OLD, NEW])
def test_a_commit_that_names_another_topic_does_not_count(fatal, consumed):
    found = origin_of(committed(OLD), consumed=consumed, fatal=fatal)
    assert found == CommittedStart(5, 2, OLD, False)
    assert found.committed is None


def test_without_a_commit_the_topic_is_the_one_that_was_consumed():
    assert origin_of(None) == CommittedStart(topic_id=NEW)
    assert origin_of(None, consumed=OLD) == CommittedStart(topic_id=OLD)
    other = {TopicPartition("t", 1): committed(OLD)}
    assert origin_of(None, others=other) == CommittedStart(topic_id=OLD), "another partition's commit tells"


def test_a_foreign_commit_counts_unless_a_loss_has_to_be_told():
    foreign = committed(None, "theirs")
    assert origin_of(foreign) == CommittedStart(5, 2, NEW, True)
    assert origin_of(foreign, consumed=OLD) == CommittedStart(5, 2, NEW, True)
    assert origin_of(foreign, consumed=OLD, fatal=True) == CommittedStart(5, 2, OLD, False)
    assert origin_of(foreign, consumed=NEW, fatal=True) == CommittedStart(5, 2, NEW, True)


def test_a_commit_that_was_copied_from_another_cluster_names_no_topic_here():
    """As MirrorMaker 2 copies them, metadata included."""
    t0 = TopicPartition("t", 0)
    copied = {t0: OffsetAndMetadata(5, pack("note", OLD, "there"), -1), TopicPartition("t", 1): None}
    found = of_this_cluster(copied, "here")
    assert as_committed(found, {"t": NEW}) == {t0: OffsetAndMetadata(5, "note"), TopicPartition("t", 1): None}
    assert origin_of(found[t0], fatal=True) == CommittedStart(5, -1, NEW, True)
    for same in ("there", None):
        assert of_this_cluster(copied, same) == copied


def test_brokers_without_ids_change_nothing():
    assert origin_of(committed(None), now=None) == CommittedStart(5, 2, None, True)
    assert origin_of(None, now=None) == CommittedStart()
    assert origin_of(committed(OLD), now=None) == CommittedStart(5, 2, OLD, True)


def test_what_users_see_is_their_text_and_nothing_of_topics_that_are_gone():
    t0, t1, t2 = (TopicPartition("t", n) for n in range(3))
    found = {t0: committed(NEW, "note"), t1: committed(OLD), t2: None}
    assert as_committed(found, {"t": NEW}) == {t0: OffsetAndMetadata(5, "note", 2), t1: None, t2: None}
    assert outdated(found, {"t": NEW}) == {"t": OLD}


def test_what_is_done_beyond_an_offset_of_another_topic_does_not_count(tp):
    (t0,) = tp("t-0")
    here, other = b"t" * 16, b"o" * 16

    def start(topic_id):
        found = {t0: OffsetAndMetadata(5, pack("", topic_id, done="3.rAQE"), 3)}
        return committed_starts([t0], found, {"t": here}, TopicIds(), loss_is_fatal=False)[t0]

    assert start(here) == CommittedStart(5, 3, here, counts=True, done="3.rAQE")
    assert start(here).committed == OffsetAndMetadata(5, pack("", here, done="3.rAQE"), 3)
    assert start(other) == CommittedStart(5, 3, other, counts=False)
