"""Deaths of workers in calls of the user's function: counted like tries of the call, by partition and first offset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from kafka_actors.job.messages import CallInHand, DeathsInCall
from kafka_actors.types import TopicPartition

__all__ = ["CallDeaths", "NextCall", "SuspectCalls", "exhausted"]


def exhausted(died: DeathsInCall, retries: int) -> bool:
    """Whether these records are not to be called with again. One death alone says nothing of them: a process may end for
    many reasons."""
    return died.times > max(1, retries)


class CallDeaths:
    """The supervisor's record of calls in which a worker died by itself."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._of: dict[TopicPartition, DeathsInCall] = {}

    def took(self, calls: Iterable[CallInHand], how: str) -> list[DeathsInCall]:
        """A worker died, with these calls in hand. One of several is to blame, nobody knows which: each of them is made
        alone from then on, and only then counted."""
        calls = list(calls)
        found = [self._died(call, how, len(calls) == 1) for call in calls]
        self._of.update({died.partition: died for died in found})
        return found

    def _died(self, call: CallInHand, how: str, alone: bool) -> DeathsInCall:
        known = self._of.get(call.partition)
        times = 0 if known is None or not self._same(known, call) else known.times
        return DeathsInCall(call.partition, call.first, call.last, times + alone, how)

    def _same(self, known: DeathsInCall, call: CallInHand) -> bool:
        """Also a part of what was tried often enough: the records at fault are looked for there."""
        inside = known.first <= call.first <= known.last and exhausted(known, self._retries)
        return call.first == known.first or inside

    def forget(self, passed: Iterable[DeathsInCall]) -> None:
        """These are done with; a later death in one of their partitions is not."""
        for died in passed:
            if self._of.get(died.partition) == died:
                del self._of[died.partition]

    @property
    def known(self) -> list[DeathsInCall]:
        return list(self._of.values())

    def told(self, calls: Sequence[DeathsInCall]) -> str:
        """Describes what `took` returned, for people."""
        if len(calls) > 1:
            return f"with {len(calls)} calls in hand, each of which is made alone from now on"
        return "".join(self._told(died) for died in calls)

    def _told(self, died: DeathsInCall) -> str:
        tp, tries = died.partition, max(1, self._retries) + 1
        offsets = (
            f"offset {died.first}" if died.first == died.last else f"offsets {died.first} to {died.last}"
        )
        counted = f"try {died.times} of {tries}" if died.times <= tries else "a part of what was tried"
        return f"in the call with {tp.topic}-{tp.partition} {offsets}, {counted}"


class NextCall(NamedTuple):
    """The function is called with so many of the rows at hand; or (`given_up`) not at all. `alone`: with no other call
    beside it."""

    rows: int
    alone: bool = False
    given_up: DeathsInCall | None = None


class SuspectCalls:
    """What a worker knows of calls in which others died: the same records make a call again, and alone; those that were
    tried often enough are given up, or (`takes_out`) tried in halves until the records at fault are found."""

    def __init__(self, retries: int, takes_out: bool) -> None:
        self._retries = retries
        self._takes_out = takes_out
        self._of: dict[TopicPartition, DeathsInCall] = {}

    def suspect(self, died: DeathsInCall) -> None:
        self._of[died.partition] = died

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are others' now."""
        for partition in partitions:
            self._of.pop(partition, None)

    def next(self, partition: TopicPartition, offsets: npt.NDArray[Any]) -> NextCall:
        """The next call for a batch with these offsets."""
        died, rows = self._of.get(partition), len(offsets)
        if died is None or not rows:
            return NextCall(rows)
        if offsets[0] > died.last:
            self._of.pop(partition, None)  # unless another thread was faster
            return NextCall(rows)
        before, inside = (int((offsets < end).sum()) for end in (died.first, died.last + 1))
        if before:
            return NextCall(before)
        if not exhausted(died, self._retries):
            return NextCall(inside, alone=True)
        if not self._takes_out or died.first == died.last:
            return NextCall(inside, given_up=died)
        return NextCall(max(1, inside // 2), alone=True)
