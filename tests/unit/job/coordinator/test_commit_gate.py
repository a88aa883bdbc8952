"""The gate that all commits of a job pass."""

import pytest

from kafka_actors.errors import RebalanceInProgressError
from kafka_actors.group.commit_metadata import pack
from kafka_actors.job.coordinator.machines.commit_gate import CommitGate
from kafka_actors.job.messages import CommitEntry
from kafka_actors.types import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def holds():
    return {("a", P0): (1, 1), ("a", P1): (1, 2)}


@pytest.fixture
def gate(holds):
    return CommitGate(lambda worker, partition: holds.get((worker, partition)))


def test_what_is_offered_is_taken_once_and_committed_when_acknowledged(gate):
    assert gate.offer("a", [CommitEntry(P0, (1, 1), 10, 3)]) == []
    assert gate.take() == {P0: OffsetAndMetadata(10, "", 3)}
    assert gate.take() == {}
    gate.finished({P0: None})
    assert gate.start_of(P0) == OffsetAndMetadata(10, "", 3)
    assert not gate.waiting
    assert not gate.busy


def test_a_late_commit_under_an_old_epoch_is_refused(gate, holds):
    holds["b", P0] = (1, 7)
    del holds["a", P0]
    assert gate.offer("a", [CommitEntry(P0, (1, 1), 99), CommitEntry(P1, (1, 2), 5)]) == [P0]
    assert gate.take() == {P1: OffsetAndMetadata(5)}


def test_the_same_worker_under_a_newer_epoch_is_refused_too(gate, holds):
    holds["a", P0] = (2, 1)
    assert gate.offer("a", [CommitEntry(P0, (1, 1), 99)]) == [P0]


def test_an_offset_never_goes_down(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    gate.offer("a", [CommitEntry(P0, (1, 1), 40)])
    assert gate.take() == {}
    gate.offer("a", [CommitEntry(P0, (1, 1), 60)])
    gate.take()
    gate.offer("a", [CommitEntry(P0, (1, 1), 55)])
    gate.finished({P0: None})
    assert gate.take() == {}
    assert gate.start_of(P0) == OffsetAndMetadata(60)


def test_a_declared_reset_is_committed_only_when_the_broker_has_acknowledged_it(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    reset, later = CommitEntry(P0, (1, 1), 7, rewind=True), CommitEntry(P0, (1, 1), 8)
    for entry in (reset, later):
        gate.offer("a", [entry])
        gate.take()
        gate.finished({P0: RebalanceInProgressError()})
        assert not gate.is_committed(entry)
    gate.take()
    gate.finished({P0: None})
    assert gate.is_committed(reset)
    assert gate.is_committed(later)


def test_a_declared_reset_offered_behind_a_commit_in_flight_waits_for_its_own_answer(gate):
    first, reset = CommitEntry(P0, (1, 1), 60), CommitEntry(P0, (1, 1), 7, rewind=True)
    gate.offer("a", [first])
    gate.take()
    gate.offer("a", [reset])
    gate.finished({P0: None})
    assert not gate.is_committed(reset)
    gate.take()
    gate.finished({P0: None})
    assert gate.is_committed(reset)


def test_a_declared_reset_may_lower_it(gate):
    gate.baseline({P0: OffsetAndMetadata(50)})
    gate.offer("a", [CommitEntry(P0, (1, 1), 7, rewind=True)])
    assert gate.take() == {P0: OffsetAndMetadata(7)}


def test_one_commit_is_in_flight_and_the_next_gathers_what_came_meanwhile(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 10)])
    gate.take()
    gate.offer("a", [CommitEntry(P0, (1, 1), 20)])
    gate.offer("a", [CommitEntry(P0, (1, 1), 30), CommitEntry(P1, (1, 2), 4)])
    assert gate.take() == {}
    gate.finished({P0: None})
    assert gate.take() == {P0: OffsetAndMetadata(30), P1: OffsetAndMetadata(4)}


def test_errors_are_per_partition_and_a_failed_one_is_offered_again(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 10), CommitEntry(P1, (1, 2), 4)])
    gate.take()
    gate.finished({P0: None, P1: RebalanceInProgressError()})
    assert gate.start_of(P1) is None
    assert gate.take() == {P1: OffsetAndMetadata(4)}


def test_nothing_of_a_lost_partition_is_committed_any_more(gate):
    gate.offer("a", [CommitEntry(P0, (1, 1), 10)])
    gate.take()
    gate.forget([P0])
    gate.finished({P0: RebalanceInProgressError()})
    assert gate.take() == {}
    assert gate.start_of(P0) is None


OLD, NEW = b"o" * 16, b"n" * 16


def test_offsets_of_two_topics_of_one_name_are_not_compared(gate):
    gate.baseline({P0: OffsetAndMetadata(50, pack("", OLD))})
    entry = CommitEntry(P0, (1, 1), 7, topic_id=NEW)
    assert gate.offer("a", [entry]) == []
    assert not gate.is_committed(entry)
    assert gate.take() == {P0: OffsetAndMetadata(7, pack("", NEW))}
    gate.finished({P0: None})
    assert gate.is_committed(entry)
    gate.offer("a", [CommitEntry(P0, (1, 1), 6, topic_id=NEW)])
    assert gate.take() == {}
