"""Counting where there is no SDK: an actor counts, its supervisor gives the differences to the meter.

A tally only grows, and travels as a whole: one that is lost, repeated or late changes nothing that the next does not
put right. Each actor's incarnation has a tally of its own, so the sums over all never fall, whoever is replaced.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

from msgspec import Struct

from .attributes import Attributes
from .instruments import BY_NAME, Instrument, InstrumentKind
from .recorder import Recorder

__all__ = ["Buckets", "Tally", "TallyPoint", "TallyState", "TallyTotals"]

Key = tuple[str, Attributes]


class TallyPoint(Struct, frozen=True, array_like=True):
    """One value of an instrument: of a counter all that was added, of a gauge what it is now."""

    name: str
    attributes: Attributes
    value: float


class Buckets(Struct, frozen=True, array_like=True):
    """A histogram: how many values fell into each bucket, and their sum there."""

    name: str
    attributes: Attributes
    counts: list[int]
    sums: list[float]


class TallyState(Struct, frozen=True, tag=True):
    """A tally at one moment. `gauges` are as they are now."""

    counts: list[TallyPoint] = []
    buckets: list[Buckets] = []
    gauges: list[TallyPoint] = []


class Tally(Recorder):
    """A recorder that keeps sums."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Key, float] = {}
        self._buckets: dict[Key, tuple[list[int], list[float]]] = {}

    def add(self, instrument: Instrument, amount: float, attributes: Attributes = ()) -> None:
        key = instrument.name, attributes
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def record(self, instrument: Instrument, value: float, attributes: Attributes = ()) -> None:
        key = instrument.name, attributes
        place = bisect_left(instrument.boundaries, value)
        with self._lock:
            known = self._buckets.get(key)
            if known is None:
                size = len(instrument.boundaries) + 1
                known = self._buckets[key] = ([0] * size, [0.0] * size)
            known[0][place] += 1
            known[1][place] += value

    def state(
        self, gauges: list[TallyPoint] | None = None, counted: list[Buckets] | None = None
    ) -> TallyState:
        """All of it, to be sent; with histograms that are counted elsewhere."""
        with self._lock:
            own = [
                Buckets(n, a, list(counts), list(sums)) for (n, a), (counts, sums) in self._buckets.items()
            ]
            return TallyState(
                [TallyPoint(name, attributes, value) for (name, attributes), value in self._counts.items()],
                own + (counted or []),
                gauges or [],
            )


class TallyTotals:
    """Takes the tallies of many actors and gives what is new in them to a recorder.

    A histogram's values come out as the mean of those that fell into the same bucket: count, sum and buckets of
    what is exported are exact.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[str, dict[Key, float]] = {}
        self._buckets: dict[str, dict[Key, Buckets]] = {}
        self.gauges: dict[str, list[TallyPoint]] = {}

    def take(self, source: str, state: TallyState) -> None:
        """The tally of one incarnation of an actor. An older one than was taken before adds nothing."""
        counts = self._counts.setdefault(source, {})
        for count in state.counts:
            key = count.name, count.attributes
            new = count.value - counts.get(key, 0)
            if new > 0 and count.name in BY_NAME:
                counts[key] = count.value
                self._recorder.add(BY_NAME[count.name], new, count.attributes)
        buckets = self._buckets.setdefault(source, {})
        for each in state.buckets:
            before = buckets.get((each.name, each.attributes))
            if each.name in BY_NAME and (before is None or sum(each.counts) > sum(before.counts)):
                self._replay(each, before)
                buckets[each.name, each.attributes] = each
        self.gauges[source] = state.gauges

    def _replay(self, now: Buckets, before: Buckets | None) -> None:
        instrument = BY_NAME[now.name]
        counts, sums = now.counts, now.sums
        if before is not None:
            counts = [count - old for count, old in zip(counts, before.counts, strict=True)]
            sums = [total - old for total, old in zip(sums, before.sums, strict=True)]
        if instrument.kind is InstrumentKind.DISTRIBUTION:
            self._recorder.merge(instrument, counts, sum(sums), now.attributes)
            return
        for new, total in zip(counts, sums, strict=True):
            for _ in range(new):
                self._recorder.record(instrument, total / new, now.attributes)

    def forget(self, source: str) -> None:
        """The incarnation has ended; what it counted stays counted."""
        self._counts.pop(source, None)
        self._buckets.pop(source, None)
        self.gauges.pop(source, None)
