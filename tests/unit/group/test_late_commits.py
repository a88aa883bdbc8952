"""Commits without an answer that may undo later ones: what is looked up again, when, and what is committed again."""

from __future__ import annotations

import math

import pytest

from kafka_actors.group.commit_metadata import pack
from kafka_actors.group.machines.late_commits import LateCommits
from kafka_actors.group.machines.member_events import Generation
from kafka_actors.group.machines.offset_fetch import CommittedOffsets
from kafka_actors.group.machines.pending_commits import CommitEligibility
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
G1, G2 = Generation(1, "m", "range"), Generation(2, "m", "range")
ID = b"1" * 16


def at(offset: int, topic_id: bytes = ID) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, pack("", topic_id), 3)


def member(**changes: object) -> CommitEligibility:
    return CommitEligibility(
        **({"connected": True, "may_commit": True, "generation": G1, "owned": frozenset({A, B})} | changes)
    )


def late(*partitions: TopicPartition, now: float = 0.0) -> LateCommits:
    found = LateCommits(30.0)
    found.unanswered(partitions, G1, now)
    return found


def test_partitions_are_looked_up_when_nothing_was_without_an_answer_for_a_while():
    found = LateCommits(30.0)
    assert found.due_at == math.inf
    found.unanswered([A], G1, 5.0)
    found.unanswered([B], G1, 10.0)
    assert (set(found.partitions), found.due_at) == ({A, B}, 40.0)


def test_what_differs_from_what_was_acknowledged_is_committed_again_until_that_is_acknowledged():
    found = late(A, B)
    found.committed(A, at(9))
    found.committed(B, at(3))
    group = CommittedOffsets(offsets={A: at(5), B: at(3)})
    assert found.undone(group, 30.0) == {A: at(9)}
    assert (set(found.partitions), found.due_at) == ({A}, 60.0)
    assert found.undone(group, 60.0) == {A: at(9)}
    found.committed(A, at(9))
    assert (set(found.partitions), found.due_at) == (set(), math.inf)


def test_without_an_acknowledged_offset_or_an_answer_for_the_partition_nothing_is_known():
    found = late(A, B)
    found.committed(B, at(3))
    assert found.undone(CommittedOffsets(offsets={A: at(5)}), 30.0) == {}
    assert found.due_at == math.inf


def test_an_offset_that_the_group_has_lost_is_committed_again():
    found = late(A)
    found.committed(A, at(9))
    assert found.undone(CommittedOffsets(offsets={A: None}), 30.0) == {A: at(9)}


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": G2},
        {"owned": frozenset({B})},
        {"owned": None},
        {"ended": RuntimeError("over")},
    ],
    ids=["fenced", "gone", "by hand", "over"],
)
def test_nothing_is_kept_that_is_fenced_or_not_ones_own(changes):
    found = late(A)
    found.committed(A, at(9))
    found.keep(member(topic_id=lambda _: ID))
    assert set(found.partitions) == {A}
    found.keep(member(**changes))
    assert (set(found.partitions), found.due_at) == (set(), math.inf)


def test_in_a_topic_that_was_made_anew_what_is_committed_then_is_looked_after():
    """A commit by name, without an answer, may land in the new topic as well: with the offset that the group has there, perhaps."""
    found = late(A)
    found.committed(A, at(9))
    found.keep(member(topic_id=lambda _: b"2" * 16))
    assert found.undone(CommittedOffsets(offsets={A: at(9)}), 30.0) == {}, "nothing is known of the new topic"
    found = late(A)
    found.committed(A, at(9))
    found.keep(member(topic_id=lambda _: b"2" * 16))
    found.committed(A, at(9, b"2" * 16))
    assert found.undone(CommittedOffsets(offsets={A: at(9, ID)}), 30.0) == {A: at(9, b"2" * 16)}
    found.committed(A, at(9, b"2" * 16))
    assert found.due_at == math.inf
