"""A member's commits: which it may make, how they become requests, and the generation that the group refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_actors.errors import IllegalGenerationError, KafkaTimeoutError, UsageError
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.member_events import Generation
from kafka_actors.group.machines.pending_commits import (
    MAX_METADATA_BYTES,
    CommitEligibility,
    GenerationRefusal,
    PendingCommit,
    as_ours,
    check_offset,
    commit_request,
    not_owned,
    recreated,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
CONFIG = GroupConfig("g", group_instance_id="i")
STABLE = CommitEligibility(True, True, generation=Generation(4, "m"), owned=frozenset({A0, A1, B0}))


def test_a_commit_is_done_when_each_partition_has_its_outcome() -> None:
    commit = PendingCommit({A0: OffsetAndMetadata(1), A1: OffsetAndMetadata(2)}, deadline=5.0)
    assert not commit.done
    commit.results[A0] = None
    assert not commit.done
    commit.results[A1] = not_owned(A1)
    assert commit.done
    assert PendingCommit({}, 5.0).done


def test_a_request_has_the_members_generation_and_the_partitions_by_topic() -> None:
    offsets = {B0: OffsetAndMetadata(9), A1: OffsetAndMetadata(5, "note", 3), A0: OffsetAndMetadata(7)}
    request = commit_request(CONFIG, offsets, STABLE)
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 4, "m")
    assert request.group_instance_id == "i"
    found = [
        (
            t.name,
            [
                (p.partition_index, p.committed_offset, p.committed_metadata, p.committed_leader_epoch)
                for p in t.partitions
            ],
        )
        for t in request.topics
    ]
    assert found == [("a", [(0, 7, "", -1), (1, 5, "note", 3)]), ("b", [(0, 9, "", -1)])]


def test_a_commit_of_partitions_chosen_by_hand_is_nobodys() -> None:
    request = commit_request(CONFIG, {A0: OffsetAndMetadata(7)}, CommitEligibility(True, True))
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (
        -1,
        "",
        None,
    )


def test_offsets_that_no_request_can_carry_are_refused() -> None:
    check_offset(A0, OffsetAndMetadata(0, "x" * MAX_METADATA_BYTES))
    with pytest.raises(UsageError, match="can't commit offset -1 of a-0"):
        check_offset(A0, OffsetAndMetadata(-1))
    with pytest.raises(UsageError, match="more than 32767 bytes"):
        check_offset(A0, OffsetAndMetadata(0, "ü" * (MAX_METADATA_BYTES // 2 + 1)))


def test_errors_name_their_partition() -> None:
    refused = not_owned(A1)
    assert isinstance(refused, IllegalGenerationError)
    assert "a-1" in str(refused)
    made_anew = recreated(A1, 5, b"\x01" * 16, b"\x02" * 16)
    assert "01" * 16 in str(made_anew)
    assert "02" * 16 in str(made_anew)


def test_errors_of_others_become_ours() -> None:
    late = KafkaTimeoutError("late")
    assert as_ours(late) is late
    assert as_ours(None) is None
    foreign = as_ours(ValueError("no"))
    assert isinstance(foreign, UsageError)
    assert "no" in str(foreign)


# ---------------------------------------------------------------- the generation that the group refused


def test_a_refused_generation_is_held_back_until_the_member_has_another() -> None:
    refusal = GenerationRefusal()
    assert not refusal.holds_back(STABLE)
    refusal.refused(STABLE.generation, STABLE)
    assert refusal.holds_back(STABLE)
    assert refusal.holds_back(replace(STABLE, settled=False)), "it joins, which has not ended"
    assert not refusal.holds_back(replace(STABLE, generation=Generation(5, "m")))


@pytest.mark.parametrize("member", [replace(STABLE, settled=False), replace(STABLE, may_commit=False)])
def test_a_member_that_was_still_joining_may_come_out_in_the_same_generation(
    member: CommitEligibility,
) -> None:
    """A JoinGroup that is repeated while the group waits for SyncGroup brings no new one."""
    refusal = GenerationRefusal()
    refusal.refused(member.generation, member)
    assert refusal.holds_back(replace(member, settled=False))
    assert not refusal.holds_back(STABLE)


def test_a_request_that_goes_out_ends_the_refusal() -> None:
    refusal = GenerationRefusal()
    refusal.refused(STABLE.generation, STABLE)
    refusal.clear()
    assert not refusal.holds_back(STABLE)
