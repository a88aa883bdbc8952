"""Look-ups of offsets: which timestamps are asked for, and how the answers are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.fetch.lookups import Found, carry_out
from kafka_actors.fetch.machines.resets import LookupKind, OffsetLookup
from kafka_actors.types import EARLIEST, LATEST, TopicPartition

NOW_S = 1_000_000.0
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Offset(NamedTuple):
    offset: int
    leader_epoch: int = 2


class Brokers:
    """Leaders whose logs begin at 5 and end at 9; `young`: offset of the first record since any time."""

    def __init__(self, young: int = 7) -> None:
        self.young = young
        self.failing: dict[int, Exception] = {}
        self.asked: list[tuple[dict[TopicPartition, int], str]] = []
        self.epochs: list[Mapping[TopicPartition, int] | None] = []

    async def list_offsets(
        self, partitions: Any, *, isolation_level: str, leader_epochs: Any = None
    ) -> dict[TopicPartition, Any]:
        self.asked.append((dict(partitions), isolation_level))
        self.epochs.append(leader_epochs)
        return {
            tp: self.failing.get(at) or Offset({EARLIEST: 5, LATEST: 9}.get(at, self.young))
            for tp, at in partitions.items()
        }

    async def offsets_for_leader_epoch(self, partitions: Any) -> dict[TopicPartition, Any]:
        raise AssertionError("no epoch is looked up here")


def found(brokers: Brokers, *lookups: OffsetLookup) -> list[Found]:
    answers = asyncio.run(carry_out(list(lookups), brokers, "read_committed", lambda: NOW_S))
    return [answers[lookup] for lookup in lookups]


def test_both_ends_are_asked_for_by_their_timestamps_in_the_readers_isolation() -> None:
    brokers = Brokers()
    first = OffsetLookup(A, 1, LookupKind.EARLIEST, leader_epoch=4)
    last = OffsetLookup(B, 1, LookupKind.LATEST, leader_epoch=6)
    assert found(brokers, first, last) == [(5, 2), (9, 2)]
    assert brokers.asked == [({A: EARLIEST, B: LATEST}, "read_committed")], "one request for both"
    assert brokers.epochs == [{A: 4, B: 6}]


def test_bounds_are_those_of_the_log_whatever_the_isolation() -> None:
    brokers = Brokers()
    assert found(brokers, OffsetLookup(A, 1, LookupKind.BOUNDS)) == [(5, 9)]
    assert brokers.asked == [({A: EARLIEST}, "read_uncommitted"), ({A: LATEST}, "read_uncommitted")]


@pytest.mark.parametrize("failing", [EARLIEST, LATEST])
def test_bounds_of_which_one_fails_have_its_error(failing: int) -> None:
    brokers = Brokers()
    brokers.failing[failing] = error = KafkaTimeoutError("late")
    assert found(brokers, OffsetLookup(A, 1, LookupKind.BOUNDS)) == [error]


def test_a_duration_counts_back_from_the_wall_clock() -> None:
    brokers = Brokers()
    assert found(brokers, OffsetLookup(A, 1, LookupKind.DURATION, seconds=60.0)) == [(7, 2)]
    assert brokers.asked == [({A: int((NOW_S - 60) * 1000)}, "read_committed")]


@pytest.mark.parametrize("seconds", [NOW_S + 0.001, NOW_S + 0.002, NOW_S + 60.0, 1e20])
def test_a_duration_that_reaches_behind_1970_begins_there(seconds: float) -> None:
    """Timestamps below 0 are names for brokers: of the ends of the log, or of nothing that they know."""
    brokers = Brokers()
    assert found(brokers, OffsetLookup(A, 1, LookupKind.DURATION, seconds=seconds)) == [(7, 2)]
    assert brokers.asked == [({A: 0}, "read_committed")]


def test_kip_1106_reading_begins_at_the_end_where_no_record_is_young_enough() -> None:
    brokers = Brokers(young=-1)
    lookup, other = (
        OffsetLookup(A, 1, LookupKind.DURATION, seconds=60.0),
        OffsetLookup(B, 1, LookupKind.EARLIEST),
    )
    assert found(brokers, lookup, other) == [(9, 2), (5, 2)]
    assert brokers.asked[1:] == [({A: LATEST}, "read_committed")], "only that one is asked for again"


def test_a_duration_that_fails_is_not_asked_for_again() -> None:
    brokers = Brokers()
    at = int((NOW_S - 60) * 1000)
    brokers.failing[at] = error = KafkaTimeoutError("late")
    assert found(brokers, OffsetLookup(A, 1, LookupKind.DURATION, seconds=60.0)) == [error]
    assert len(brokers.asked) == 1
