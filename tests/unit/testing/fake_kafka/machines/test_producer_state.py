"""Sequences, epochs and duplicates, as tests/integration/test_producer_sequences.py has found them on a real broker."""

from __future__ import annotations

import pytest
from fakes.fake_wire import NOW_MS, record_batch

from kafka_actors import errors
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.producer_state import ProducerStates
from kafka_actors.testing.fake_kafka.machines.record_batches import marker, parse


class States:
    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def put(self, epoch: int, sequence: int, count: int = 2, at: int = NOW_MS, now: int = NOW_MS) -> int:
        """Returns the base offset, or minus the error code."""
        data = record_batch(*[b""] * count, producer=(5, epoch, sequence), timestamps=[at] * count)
        batch = parse(data).placed(self.end, 0)
        try:
            duplicate = self.states.admit(batch, now)
        except Refused as refused:
            return -refused.code
        if duplicate is not None:
            return duplicate.first_offset
        self.states.written(batch)
        self.end += count
        return batch.base_offset


UNORDERED, OLD_EPOCH = -errors.OutOfOrderSequenceNumberError.code, -errors.InvalidProducerEpochError.code


def test_any_first_sequence_then_without_a_gap_and_a_new_epoch_only_from_0() -> None:
    states = States()
    assert states.put(0, 10) == 0
    assert states.put(0, 0) == UNORDERED
    assert states.put(0, 12) == 2
    assert states.put(0, 10) == 0, "a duplicate"
    assert states.put(0, 10, 1) == UNORDERED, "no duplicate: it has other sequences"
    assert states.put(0, 15) == UNORDERED
    assert states.put(1, 14) == UNORDERED
    assert states.put(1, 0) == 4
    assert states.put(0, 14) == OLD_EPOCH


def test_batches_of_an_older_epoch_are_no_duplicates() -> None:
    states = States()
    assert states.put(0, 0) == 0
    assert states.put(1, 0) == 2
    assert states.put(1, 0) == 2


def test_five_batches_are_remembered() -> None:
    states = States()
    for sequence in range(0, 12, 2):
        assert states.put(0, sequence) == sequence
    assert states.put(0, 2) == 2
    assert states.put(0, 0) == UNORDERED, "the sixth from the end is forgotten"


def test_a_broker_that_starts_again_remembers_the_last_batch_alone() -> None:
    states = States()
    assert [states.put(0, sequence) for sequence in (0, 2, 4)] == [0, 2, 4]
    states.states.reload()
    assert [states.put(0, sequence) for sequence in (0, 2, 4, 6)] == [UNORDERED, UNORDERED, 4, 6]


def test_sequences_go_on_at_0_behind_the_largest() -> None:
    states = States()
    assert states.put(0, 2**31 - 2) == 0
    assert states.put(0, 0) == 2


def test_a_producer_is_forgotten_by_its_records_timestamps_at_the_next_check() -> None:
    states = States()
    day, check = 86_400_000, 600_000
    begin = NOW_MS - NOW_MS % check
    assert states.put(0, 0, at=begin - day + 1, now=begin) == 0, "records that are almost a day old"
    assert states.put(0, 9, now=begin + check - 1) == UNORDERED, "not checked since"
    assert states.put(0, 9, now=begin + check) == 2


def test_after_a_truncation_is_known_what_is_left() -> None:
    states = States()
    first = parse(record_batch(b"", producer=(5, 0, 0)))
    states.put(0, 0, 1)
    states.put(0, 1, 1)
    states.states.rebuild([first])
    assert states.put(0, 1, 1) == 2
    assert 5 in states.states
    states.states.rebuild([])
    assert 5 not in states.states


@pytest.mark.parametrize(("from_0", "verified"), [(True, -45), (False, 3)])
def test_a_marker_of_a_verified_epoch_leaves_its_lowest_sequence_in_version_2(
    from_0: bool, verified: int
) -> None:
    states = States()
    assert states.put(0, 0) == 0
    assert states.states.to_verify(5, 0, 1, from_0=from_0)
    end = marker(5, 0, committed=True, coordinator_epoch=0, now_ms=NOW_MS).placed(2, 0)
    states.states.written(end)
    states.end = 3
    assert states.put(0, 2) == verified, "1 was seen first"


def test_before_4_0_an_open_transaction_of_any_epoch_is_not_verified() -> None:
    states = ProducerStates()
    batch = parse(record_batch(b"", producer=(5, 1, 0), transactional=True)).placed(0, 0)
    states.written(batch)
    assert not states.to_verify(5, 1, 1, from_0=False)
    assert not states.to_verify(5, 0, 1, from_0=False, of_any_epoch=True)
    assert states.to_verify(5, 0, 1, from_0=False)


def test_batches_without_a_producer_are_always_taken() -> None:
    states = ProducerStates()
    batch = parse(record_batch(b""))
    states.written(batch)
    assert states.admit(batch, NOW_MS) is None
