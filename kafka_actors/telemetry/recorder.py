"""Recorders: they take the values of instruments and pass them to an OpenTelemetry meter, to a tally, or nowhere. Events that
are logged and have an instrument are counted by one (`counting`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from opentelemetry import metrics as api

from kafka_actors.events import (
    BadBatchSkipped,
    Event,
    EventSink,
    NoCommittedOffset,
    OffsetReset,
    PartitionNotRead,
    PartitionStalled,
    RecordsDeadLettered,
    RecordsRetriedLater,
    RecordsSkipped,
)

from .attributes import Attributes, of_group, of_partition
from .instruments import (
    BAD_BATCHES,
    ERROR_TYPE,
    FAILED_MESSAGES,
    OFFSET_RESETS,
    SCHEMA_URL,
    STALLS,
    Instrument,
    InstrumentKind,
)

__all__ = [
    "BucketSums",
    "Distributions",
    "GroupRecorder",
    "MeterRecorder",
    "Recorder",
    "as_mapping",
    "counted",
    "counting",
    "distributions",
    "meter",
    "metered",
    "record_into",
]


class Recorder:
    """Takes values of instruments, from any thread, and must not block. This base class drops them."""

    def add(self, instrument: Instrument, amount: float, attributes: Attributes = ()) -> None:
        """Adds `amount` to a counter."""

    def record(self, instrument: Instrument, value: float, attributes: Attributes = ()) -> None:
        """Records one value of a histogram."""

    def merge(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes = ()
    ) -> None:
        """Adds values of a distribution that were counted elsewhere: how many in each bucket, and their sum."""

    def into(self, instrument: Instrument, attributes: Attributes = ()) -> Callable[[float], None]:
        """Returns `add` or `record` of one instrument as a function of the value alone."""
        take = self.add if instrument.kind is InstrumentKind.COUNTER else self.record
        return lambda value: take(instrument, value, attributes)


class GroupRecorder(Recorder):
    """Passes values on to another recorder, with the label `group` added where it is missing."""

    def __init__(self, recorder: Recorder, group_id: str | None) -> None:
        self._recorder = recorder
        self._label: Attributes = () if group_id is None else of_group(group_id)

    def add(self, instrument: Instrument, amount: float, attributes: Attributes = ()) -> None:
        self._recorder.add(instrument, amount, self._labelled(attributes))

    def record(self, instrument: Instrument, value: float, attributes: Attributes = ()) -> None:
        self._recorder.record(instrument, value, self._labelled(attributes))

    def merge(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes = ()
    ) -> None:
        self._recorder.merge(instrument, counts, total, self._labelled(attributes))

    def into(self, instrument: Instrument, attributes: Attributes = ()) -> Callable[[float], None]:
        return self._recorder.into(instrument, self._labelled(attributes))

    def _labelled(self, attributes: Attributes) -> Attributes:
        return attributes if attributes[:1] == self._label else (*self._label, *attributes)


class BucketSums(NamedTuple):
    """Values of a histogram: how many fell into each bucket (`counts`; the last bucket is above all boundaries), and
    the sum of the values themselves (`total`)."""

    counts: tuple[int, ...]
    total: float


class Distributions:
    """Sums up histograms whose values arrive as counts by bucket, for as long as the process lives.

    Prometheus and the exporters read them here. Any thread may call any method.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[Instrument, dict[Attributes, BucketSums]] = {}

    def add(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes
    ) -> None:
        """Adds new values: how many in each bucket, and their sum."""
        with self._lock:
            by_attributes = self._sums.setdefault(instrument, {})
            before = by_attributes.get(attributes, BucketSums((0,) * len(counts), 0.0))
            summed = tuple(old + new for old, new in zip(before.counts, counts, strict=True))
            by_attributes[attributes] = BucketSums(summed, before.total + total)

    def read(self) -> dict[Instrument, dict[Attributes, BucketSums]]:
        """Returns a copy of the present sums."""
        with self._lock:
            return {instrument: dict(sums) for instrument, sums in self._sums.items()}


@lru_cache(maxsize=1)
def distributions() -> Distributions:
    """The distributions of this process."""
    return Distributions()


class MeterRecorder(Recorder):
    """Passes values to the instruments of a meter. Each instrument is created at its first value."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._takes: dict[str, Callable[..., None]] = {}

    def add(self, instrument: Instrument, amount: float, attributes: Attributes = ()) -> None:
        (self._takes.get(instrument.name) or self._make(instrument))(amount, as_mapping(attributes))

    def record(self, instrument: Instrument, value: float, attributes: Attributes = ()) -> None:
        self.add(instrument, value, attributes)

    def into(self, instrument: Instrument, attributes: Attributes = ()) -> Callable[[float], None]:
        take = self._takes.get(instrument.name) or self._make(instrument)
        return partial(take, attributes=as_mapping(attributes))

    def merge(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes = ()
    ) -> None:
        distributions().add(instrument, counts, total, attributes)

    def _make(self, instrument: Instrument) -> Callable[..., None]:
        name, unit, description = instrument.name, instrument.unit, instrument.description
        take: Callable[..., None]
        if instrument.kind is InstrumentKind.COUNTER:
            take = self._meter.create_counter(name, unit, description).add
        else:
            take = self._meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=instrument.boundaries
            ).record
        self._takes[name] = take
        return take


@lru_cache(maxsize=16_384)
def as_mapping(attributes: Attributes) -> Mapping[str, Any]:
    """Attributes as the mapping that OpenTelemetry takes. It is cached, so callers must not change it."""
    return dict(attributes)


@lru_cache(maxsize=1)
def meter() -> Any:
    """This library's meter. It follows the SDK that the process has or will have; without an SDK it does nothing."""
    from kafka_actors import __version__

    return api.get_meter("kafka_actors", __version__, schema_url=SCHEMA_URL)


_process: Recorder | None = None


def metered() -> Recorder:
    """The recorder of this process, into which its clients record."""
    global _process
    if _process is None:
        _process = MeterRecorder(meter())
    return _process


def record_into(recorder: Recorder) -> None:
    """Sets the recorder for all clients that are created in this process from now on."""
    global _process
    _process = recorder


def counting(recorder: Recorder, group: str | None, sink: EventSink) -> EventSink:
    """Returns a sink that counts each event and passes it on to `sink`."""

    def take(event: Event) -> None:
        counted(recorder, group, event)
        sink(event)

    return take


def counted(recorder: Recorder, group: str | None, event: Event) -> None:
    """Counts one event. Events without an instrument are ignored."""
    match event:
        case OffsetReset(topic=topic, partition=number, reason=reason):
            recorder.add(OFFSET_RESETS, 1, (*of_partition(group, topic, number), ("reason", reason)))
        case NoCommittedOffset(topic=topic, partition=number):
            recorder.add(OFFSET_RESETS, 1, (*of_partition(group, topic, number), ("reason", "no_commit")))
        case BadBatchSkipped(topic=topic, partition=number, kind=kind):
            recorder.add(BAD_BATCHES, 1, (*of_partition(group, topic, number), (ERROR_TYPE, kind)))
        case RecordsSkipped(topic=topic, partition=number, first_offset=first, last_offset=last):
            # Offsets, where compaction may have left fewer records.
            recorder.add(
                FAILED_MESSAGES,
                last - first + 1,
                (*of_partition(group, topic, number), ("outcome", "skipped")),
            )
        case RecordsDeadLettered(topic=topic, partition=number, records=records):
            recorder.add(
                FAILED_MESSAGES, records, (*of_partition(group, topic, number), ("outcome", "dead_lettered"))
            )
        case RecordsRetriedLater(topic=topic, partition=number, records=records):
            recorder.add(
                FAILED_MESSAGES, records, (*of_partition(group, topic, number), ("outcome", "retried_later"))
            )
        case (
            PartitionStalled(topic=topic, partition=number) | PartitionNotRead(topic=topic, partition=number)
        ):
            recorder.add(STALLS, 1, of_partition(group, topic, number))
        case _:
            pass
