"""Gauges, whose values are read from their sources at each collection.

OpenTelemetry can't unregister an observable instrument, but clients and jobs come and go. So a process creates each
instrument once, and clients and jobs register as sources of its values.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from opentelemetry.metrics import CallbackOptions, Observation

from .instruments import INSTRUMENTS, Instrument, InstrumentKind
from .recorder import as_mapping, meter
from .tally import TallyPoint

__all__ = ["Gauges", "Source", "gauges"]

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[TallyPoint]]

FRESH_S = 0.2
"""Seconds for which values count as fresh: all instruments of one collection are served from one reading of the sources."""


class Gauges:
    """Creates the observable instruments of a meter and reads their values from registered sources."""

    def __init__(self, meter: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter = meter
        self._clock = clock
        self._lock = threading.Lock()
        self._sources: dict[int, Source] = {}
        self._numbers = itertools.count()
        self._made = False
        self._read_at = -FRESH_S
        self._points: dict[str, list[Observation]] = {}

    def register(self, source: Source) -> Callable[[], None]:
        """Reads `source` at each collection from now on, in the SDK's thread; it may block shortly. Returns a function that
        unregisters it."""
        number = next(self._numbers)
        with self._lock:
            self._sources[number] = source
            self._read_at = -FRESH_S
            make, self._made = not self._made, True
        if make:
            for instrument in INSTRUMENTS:
                self._make(instrument)

        def forget() -> None:
            with self._lock:
                self._sources.pop(number, None)
                self._read_at = -FRESH_S

        return forget

    def _make(self, instrument: Instrument) -> None:
        creators = {
            InstrumentKind.GAUGE: self._meter.create_observable_gauge,
            InstrumentKind.UP_DOWN_COUNTER: self._meter.create_observable_up_down_counter,
        }
        if (create := creators.get(instrument.kind)) is not None:
            create(
                instrument.name,
                [lambda options, name=instrument.name: self._observe(name, options)],
                instrument.unit,
                instrument.description,
            )

    def _observe(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            sources = list(self._sources.values())
            stale = self._clock() - self._read_at >= FRESH_S
        if stale:
            points: dict[str, list[Observation]] = {}
            for source in sources:
                for point in _points_of(source):
                    points.setdefault(point.name, []).append(
                        Observation(point.value, as_mapping(point.attributes))
                    )
            with self._lock:
                self._points, self._read_at = points, self._clock()
        return self._points.get(name, [])


def _points_of(source: Source) -> list[TallyPoint]:
    """Points of a source; none if it fails, so that the other sources are still read."""
    try:
        return list(source())
    except Exception as error:
        logger.debug("a source of gauges failed: %s: %s", type(error).__name__, error)
        return []


@lru_cache(maxsize=1)
def gauges() -> Gauges:
    """The gauges of this process."""
    return Gauges(meter())
