"""Tallies: an actor without an SDK counts into one, and its supervisor passes the differences to the meter.

A tally only grows, and is always sent as a whole: if one message is lost, repeated or late, the next one corrects it.
Each incarnation of an actor has its own tally, so the totals over all of them never fall when an actor is replaced.
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
    """Value of one instrument: a counter's total, or a gauge's present value."""

    name: str
    attributes: Attributes
    value: float


class Buckets(Struct, frozen=True, array_like=True):
    """State of one histogram: number and sum of the values in each bucket."""

    name: str
    attributes: Attributes
    counts: list[int]
    sums: list[float]


class TallyState(Struct, frozen=True, tag=True):
    """Content of a tally at one moment, as it is sent; `gauges` are the actor's present gauges."""

    counts: list[TallyPoint] = []
    buckets: list[Buckets] = []
    gauges: list[TallyPoint] = []


class Tally(Recorder):
    """Recorder that keeps totals and histograms in this process."""

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
        self, gauges: list[TallyPoint] | None = None, distributions: list[Buckets] | None = None
    ) -> TallyState:
        """Returns everything to be sent, with present gauges and with distributions that are counted elsewhere."""
        with self._lock:
            own = [
                Buckets(n, a, list(counts), list(sums)) for (n, a), (counts, sums) in self._buckets.items()
            ]
            return TallyState(
                [TallyPoint(name, attributes, value) for (name, attributes), value in self._counts.items()],
                own + (distributions or []),
                gauges or [],
            )


class TallyTotals:
    """Takes the tallies of many actors and passes what is new in them to a recorder.

    New values of a histogram are recorded as the mean of their bucket, so that the exported count, sum and buckets are
    exact.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[str, dict[Key, float]] = {}
        self._buckets: dict[str, dict[Key, Buckets]] = {}
        self.gauges: dict[str, list[TallyPoint]] = {}

    def take(self, source: str, state: TallyState) -> None:
        """Takes the tally of one incarnation of an actor. A tally older than the last one adds nothing."""
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
        """Drops the state of an incarnation that has ended; what it has counted stays counted."""
        self._counts.pop(source, None)
        self._buckets.pop(source, None)
        self.gauges.pop(source, None)
