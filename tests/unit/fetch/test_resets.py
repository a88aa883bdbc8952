"""Which offset is looked up for a partition without a valid position, and what users hear of it."""

from __future__ import annotations

import pytest

from kafka_actors.errors import FetchOffsetOutOfRangeError, NoOffsetForPartitionError, TopicRecreatedError
from kafka_actors.events import NoCommittedOffset, OffsetReset
from kafka_actors.fetch.machines.partition_state import FetchPartition, LookupPurpose, PartitionStart
from kafka_actors.fetch.machines.resets import LookupKind, ResetPolicy, error_of_loss, event_of_choice
from kafka_actors.types import TopicPartition

TP = TopicPartition("t", 3)
LOST = (LookupPurpose.OUT_OF_RANGE, LookupPurpose.TRUNCATED, LookupPurpose.RECREATED)


def partition(purpose: LookupPurpose, position: int = -1, *, proven: bool = False) -> FetchPartition:
    made = FetchPartition(TP, PartitionStart())
    made.purpose, made.position, made.proven = purpose, position, proven
    return made


def kind_of_lookup(reset: str, purpose: LookupPurpose, *, proven: bool = False) -> LookupKind | None:
    lookup = ResetPolicy(reset, "reset").lookup(partition(purpose, proven=proven))
    return None if lookup is None else lookup.kind


@pytest.mark.parametrize(
    ("reset", "kind"), [("earliest", LookupKind.EARLIEST), ("latest", LookupKind.LATEST), ("none", None)]
)
def test_without_a_commit_the_option_decides(reset: str, kind: LookupKind | None) -> None:
    assert kind_of_lookup(reset, LookupPurpose.NO_COMMIT) is kind


@pytest.mark.parametrize("reset", ["earliest", "latest", "none", "by_duration:PT1H"])
def test_the_option_has_no_say_where_the_place_is_known(reset: str) -> None:
    for purpose in (LookupPurpose.BEGINNING, LookupPurpose.SEEK_BEGINNING, LookupPurpose.RECREATED):
        assert kind_of_lookup(reset, purpose) is LookupKind.EARLIEST
    assert kind_of_lookup(reset, LookupPurpose.SEEK_END) is LookupKind.LATEST


def test_kip_1106_a_duration_is_looked_up_by_its_seconds() -> None:
    lookup = ResetPolicy("by_duration:PT1H30M", "reset").lookup(partition(LookupPurpose.NO_COMMIT))
    assert lookup is not None
    assert (lookup.kind, lookup.seconds) == (LookupKind.DURATION, 5400.0)


def test_an_offset_out_of_range_is_proven_by_both_ends_of_the_log_before_anything_is_reset() -> None:
    assert kind_of_lookup("latest", LookupPurpose.OUT_OF_RANGE) is LookupKind.BOUNDS
    assert kind_of_lookup("none", LookupPurpose.OUT_OF_RANGE) is LookupKind.BOUNDS
    assert kind_of_lookup("latest", LookupPurpose.OUT_OF_RANGE, proven=True) is LookupKind.LATEST


def test_a_lookup_carries_the_version_that_its_answer_has_to_have() -> None:
    asked = partition(LookupPurpose.NO_COMMIT)
    asked.version, asked.leader_epoch = 17, 4
    lookup = ResetPolicy("earliest", "reset").lookup(asked)
    assert lookup is not None
    assert (lookup.tp, lookup.version, lookup.leader_epoch) == (TP, 17, 4)


@pytest.mark.parametrize(
    ("reset", "loss", "fatal"),
    [("earliest", "fail", True), ("none", "reset", True), ("earliest", "reset", False)],
)
def test_lost_data_is_fatal_under_either_option(reset: str, loss: str, fatal: bool) -> None:
    assert ResetPolicy(reset, loss).loss_is_fatal is fatal


@pytest.mark.parametrize("purpose", LOST)
def test_a_reset_after_a_loss_says_how_many_offsets_were_skipped(purpose: LookupPurpose) -> None:
    policy = ResetPolicy("latest", "reset")
    found = event_of_choice(partition(purpose, 10), 25, policy)
    assert found == OffsetReset("t", 3, 10, 25, purpose.value, 15)
    back = event_of_choice(partition(purpose, 10), 4, policy)
    assert isinstance(back, OffsetReset)
    assert back.skipped == 0, "going back skips nothing"
    unknown = event_of_choice(partition(purpose, -1), 25, policy)
    assert isinstance(unknown, OffsetReset)
    assert unknown.skipped is None, "nobody knows how many"


def test_a_place_that_was_chosen_without_a_commit_is_an_event_and_one_that_was_sought_is_none() -> None:
    policy = ResetPolicy("latest", "reset")
    assert event_of_choice(partition(LookupPurpose.NO_COMMIT), 7, policy) == NoCommittedOffset(
        "t", 3, 7, "latest"
    )
    assert event_of_choice(partition(LookupPurpose.BEGINNING), 0, policy) == NoCommittedOffset(
        "t", 3, 0, "earliest"
    )
    assert event_of_choice(partition(LookupPurpose.SEEK_END), 7, policy) is None


def test_errors_of_a_loss_say_what_was_lost() -> None:
    out = error_of_loss(partition(LookupPurpose.OUT_OF_RANGE, 10), 20, 30)
    assert isinstance(out, FetchOffsetOutOfRangeError)
    assert all(str(number) in str(out) for number in (10, 20, 30))
    made_anew = partition(LookupPurpose.RECREATED, 10)
    made_anew.topic_id = b"\x02" * 16
    recreated = error_of_loss(made_anew, old_id=b"\x01" * 16)
    assert isinstance(recreated, TopicRecreatedError)
    assert "01" * 16 in str(recreated)
    assert "02" * 16 in str(recreated)
    assert isinstance(error_of_loss(partition(LookupPurpose.NO_COMMIT)), NoOffsetForPartitionError)
