"""A member's commits: which it may make, how they become requests, and the generation that the group refused."""

from __future__ import annotations

import pytest

from kafka_actors.errors import (
    IllegalGenerationError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UsageError,
)
from kafka_actors.group.commit_metadata import record_bytes
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.error_actions import ErrorAction
from kafka_actors.group.machines.member_events import Generation
from kafka_actors.group.machines.pending_commits import (
    MAX_METADATA_BYTES,
    CommitEligibility,
    PendingCommit,
    QueuedOffsets,
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


def _put(queue: QueuedOffsets, deadline: float = 5.0, **offsets: int) -> PendingCommit:
    where = {"a0": A0, "a1": A1}
    commit = PendingCommit({where[name]: OffsetAndMetadata(o) for name, o in offsets.items()}, deadline)
    queue.put(commit)
    return commit


def test_what_is_asked_for_meanwhile_waits_and_shares_the_outcome_of_the_latest() -> None:
    finished: list[PendingCommit] = []
    queue = QueuedOffsets(finished.append)
    first = _put(queue, a0=1)
    assert queue.begin() == {A0: OffsetAndMetadata(1)}
    second, third = _put(queue, a0=2), _put(queue, a0=3, a1=1)
    queue.settle(A0, RebalanceInProgressError("again"), ErrorAction.REJOIN)
    assert finished == []
    assert queue.begin() == {A0: OffsetAndMetadata(3), A1: OffsetAndMetadata(1)}
    queue.settle(A0, None, None)
    assert finished == [first, second]
    queue.settle(A1, not_owned(A1), ErrorAction.PARTITION)
    assert finished == [first, second, third]
    assert third.results[A0] is None
    assert isinstance(third.results[A1], IllegalGenerationError)
    assert third.refused is None, "one of its partitions was committed"


def test_as_much_is_sent_as_fits_and_what_has_waited_for_longest_goes_first() -> None:
    queue = QueuedOffsets(lambda _: None)
    one = record_bytes(A0, OffsetAndMetadata(1))
    commit = PendingCommit({tp: OffsetAndMetadata(1) for tp in (A1, A0, B0)}, 5.0)
    queue.put(commit)
    assert list(queue.begin(2 * one)) == [A1, A0]
    assert queue.bytes_sent() == 2 * one
    _put(queue, a0=2, a1=2)
    for tp in (A1, A0):
        queue.settle(tp, None, None)
    assert list(queue.begin(one - 1)) == [B0], "one at least"
    queue.settle(B0, None, None)
    assert commit.done
    assert queue.begin() == {A0: OffsetAndMetadata(2), A1: OffsetAndMetadata(2)}


def test_a_record_is_counted_with_all_that_the_coordinator_writes_of_it() -> None:
    """Key and value with their versions and lengths, and the record's own: 48 bytes, and the names of the group and the topic."""
    named = OffsetAndMetadata(1, "\u00e9" * 40)
    assert (
        record_bytes(TopicPartition("orders", 7), named) >= 48 + len("scorer-production") + len("orders") + 80
    )


def test_an_offset_of_a_partition_that_is_gone_keeps_its_outcome_but_waits_no_more() -> None:
    finished: list[PendingCommit] = []
    queue = QueuedOffsets(finished.append)
    landed, refused = _put(queue, a0=1), _put(queue, a1=1)
    queue.begin()
    later = _put(queue, a0=2)
    queue.keep(frozenset())
    assert finished == [later]
    queue.settle(A0, None, None)
    queue.settle(A1, RebalanceInProgressError("again"), ErrorAction.REJOIN)
    assert finished == [later, landed, refused]
    assert landed.results == {A0: None}
    assert isinstance(refused.results[A1], IllegalGenerationError)
    assert not queue.waiting


def test_a_commit_whose_time_is_over_is_not_sent_any_more_but_what_was_sent_is_kept() -> None:
    finished: list[PendingCommit] = []
    queue = QueuedOffsets(finished.append)
    sent = _put(queue, a0=1)
    queue.begin()
    waiting, later = _put(queue, a1=1), _put(queue, deadline=9.0, a0=5)
    queue.expire(5.0)
    assert finished == [sent, waiting]
    assert "whether it was done is unknown" in str(sent.refused)
    assert "unknown" not in str(waiting.refused)
    assert queue.sent.keys() == {A0}
    assert queue.commits == [later]
    assert queue.waiting.keys() == {A0}


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
