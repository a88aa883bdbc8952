"""Tries of the calls of the user's function: failures, and deaths of workers in calls, which count like failures.

Theory of operation. A call is identified by its partition and first offset. Each failure raises its count (`RetryCounter`) and
sets when it is due again, by the job's `Backoff`. The count outlives a turn of the partition that ends between two tries, and
the batch may be cut differently then. A call from another offset counts from one; success, or the loss of the partition, drops
the count.

A worker notes its calls in hand where they outlive it (`job/worker/call_record.py`). When it dies by itself, the supervisor
counts the calls, by partition and first offset (`CallDeaths`), before its partitions go to others; a worker that is killed
because one call lasts too long counts likewise. Among several calls in hand nobody knows which one is to blame: each of them is
made alone from then on, and only a death with one call in hand counts. Calls of one partition are counted each by itself: where calls
overlap, or workers share the partition, several of them may end their processes in turn.

Grants carry what is known to the next worker (`SuspectCalls`). It makes the same call again, with the same records and no call
beside it. After more than `retries` deaths, and two at least, because one alone says little, it is not made again: its records fail
as by an error (`on_error="fail"`), or it is made in halves until the records at fault are found, which are then taken out. A
count ends when an offset behind the call is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy.typing as npt

from kafka_actors.base.backoff import Backoff
from kafka_actors.job.messages import CallInHand, DeathsInCall
from kafka_actors.types import TopicPartition

__all__ = ["CallDeaths", "NextCall", "RetryCounter", "SuspectCalls", "exhausted"]


class _Failing(msgspec.Struct, frozen=True):
    offset: int
    attempts: int
    due: float


class RetryCounter:
    """Counts failures in a row, by partition and first offset. `now` is monotonic seconds; `rand` gives 0..1 for the jitter of `backoff`."""

    def __init__(self, backoff: Backoff, rand: Callable[[], float]) -> None:
        self._backoff = backoff
        self._rand = rand
        self._failing: dict[TopicPartition, _Failing] = {}

    def failed(self, partition: TopicPartition, offset: int, now: float) -> int:
        """Takes that a call from this offset has failed. Returns how often so far."""
        attempts = self._attempts(partition, offset) + 1
        wait_s = self._backoff.wait_s(attempts, self._rand)
        self._failing[partition] = _Failing(offset, attempts, now + wait_s)
        return attempts

    def wait_s(self, partition: TopicPartition, offset: int, now: float) -> float:
        """Returns the seconds to wait before a call from this offset."""
        failing = self._failing.get(partition)
        return max(0.0, failing.due - now) if failing is not None and failing.offset == offset else 0.0

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the counts of partitions whose call succeeded, or that other workers have now."""
        for partition in partitions:
            self._failing.pop(partition, None)

    def _attempts(self, partition: TopicPartition, offset: int) -> int:
        failing = self._failing.get(partition)
        return failing.attempts if failing is not None and failing.offset == offset else 0


MOST_KNOWN = 256
"""The most calls of one partition of which deaths are known."""


def exhausted(died: DeathsInCall, retries: int) -> bool:
    """Whether a call with these records is not to be made again. One death alone proves nothing: a process may end for many
    reasons."""
    return died.times > max(1, retries)


class CallDeaths:
    """Counts the calls in which workers died; kept by the supervisor."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._of: dict[TopicPartition, list[DeathsInCall]] = {}
        """By partition, the last one at the end."""

    def count(self, calls: Iterable[CallInHand], how: str) -> list[DeathsInCall]:
        """Takes a worker's death with these calls in hand; `how` it ended, in words. Returns the new counts; a call among
        several is counted as no death."""
        calls = list(calls)
        return [self._died(call, how, len(calls) == 1) for call in calls]

    def _died(self, call: CallInHand, how: str, alone: bool) -> DeathsInCall:
        of = self._of.setdefault(call.partition, [])
        known = next((each for each in reversed(of) if self._same(each, call)), None)
        if known is not None:
            of.remove(known)
        times = 0 if known is None else known.times
        of.append(died := DeathsInCall(call.partition, call.first, call.last, times + alone, how))
        del of[:-MOST_KNOWN]
        return died

    def _same(self, known: DeathsInCall, call: CallInHand) -> bool:
        """Whether it is the call that is known, or a part of it after too many deaths: its halves are tried then."""
        inside = known.first <= call.first <= known.last and exhausted(known, self._retries)
        return call.first == known.first or inside

    def forget(self, passed: Iterable[DeathsInCall]) -> None:
        """Drops counts behind which offsets are committed; a later death in the same partition stays."""
        for died in passed:
            if died in (of := self._of.get(died.partition, [])):
                of.remove(died)

    @property
    def known(self) -> list[DeathsInCall]:
        return [died for of in self._of.values() for died in of]

    def describe(self, calls: Sequence[DeathsInCall]) -> str:
        """Describes what `count` returned, for the log."""
        if len(calls) > 1:
            return f"with {len(calls)} calls in hand, each of which is made alone from now on"
        return "".join(self._describe(died) for died in calls)

    def _describe(self, died: DeathsInCall) -> str:
        tp, tries = died.partition, max(1, self._retries) + 1
        offsets = (
            f"offset {died.first}" if died.first == died.last else f"offsets {died.first} to {died.last}"
        )
        counted = f"try {died.times} of {tries}" if died.times <= tries else "a part of what was tried"
        return f"in the call with {tp.topic}-{tp.partition} {offsets}, {counted}"


class NextCall(NamedTuple):
    """The next call of the function: with the first `rows` of the batch, and (`alone`) with no other call beside it; or, after
    `too_many_deaths`, no call at all for these rows."""

    rows: int
    alone: bool = False
    too_many_deaths: DeathsInCall | None = None


class SuspectCalls:
    """Plans a worker's calls on records in whose call other workers died. `takes_out`: the records at fault are looked for by
    halves, and taken out, instead of failing the whole call."""

    def __init__(self, retries: int, takes_out: bool) -> None:
        self._retries = retries
        self._takes_out = takes_out
        self._of: dict[TopicPartition, DeathsInCall] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether calls of a partition have to be planned."""
        return partition in self._of

    def suspect(self, died: DeathsInCall) -> None:
        """Takes what a grant says of earlier deaths; the last counts."""
        self._of[died.partition] = died

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that other workers have now."""
        for partition in partitions:
            self._of.pop(partition, None)

    def next(self, partition: TopicPartition, offsets: npt.NDArray[Any]) -> NextCall:
        """Plans the next call for a batch with these offsets."""
        died, rows = self._of.get(partition), len(offsets)
        if died is None or not rows:
            return NextCall(rows)
        if offsets[0] > died.last:
            self._of.pop(partition, None)  # another thread may have dropped it
            return NextCall(rows)
        before, inside = (int((offsets < end).sum()) for end in (died.first, died.last + 1))
        if before:
            return NextCall(before)
        if not exhausted(died, self._retries):
            return NextCall(inside, alone=True)
        if not self._takes_out or died.first == died.last:
            return NextCall(inside, too_many_deaths=died)
        return NextCall(max(1, inside // 2), alone=True)
