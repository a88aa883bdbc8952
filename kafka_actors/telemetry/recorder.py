"""Where values go: to an OpenTelemetry meter, to a tally that travels, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from opentelemetry import metrics as api

from .attributes import Attributes, of_group
from .distributions import distributions
from .instruments import SCHEMA_URL, Instrument, InstrumentKind

__all__ = ["GroupRecorder", "MeterRecorder", "Recorder", "as_mapping", "meter", "metered", "record_into"]


class Recorder:
    """Takes values, from any thread, and must not wait. This one drops them."""

    def add(self, instrument: Instrument, amount: float, attributes: Attributes = ()) -> None:
        """So many more of what a counter counts."""

    def record(self, instrument: Instrument, value: float, attributes: Attributes = ()) -> None:
        """One value of a histogram."""

    def merge(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes = ()
    ) -> None:
        """Values of a distribution that were counted elsewhere: how many in each bucket, and what they come to."""

    def into(self, instrument: Instrument, attributes: Attributes = ()) -> Callable[[float], None]:
        """`add` or `record` of one instrument, as a function of the value alone."""
        take = self.add if instrument.kind is InstrumentKind.COUNTER else self.record
        return lambda value: take(instrument, value, attributes)


class GroupRecorder(Recorder):
    """Hands values on to another recorder, each with the label `group`, unless it comes with one."""

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

    def _labelled(self, attributes: Attributes) -> Attributes:
        return attributes if attributes[:1] == self._label else (*self._label, *attributes)


class MeterRecorder(Recorder):
    """Gives values to the instruments of a meter, which are made when they are first used."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._takes: dict[str, Callable[[float, Mapping[str, Any]], object]] = {}

    def add(self, instrument: Instrument, amount: float, attributes: Attributes = ()) -> None:
        (self._takes.get(instrument.name) or self._make(instrument))(amount, as_mapping(attributes))

    def record(self, instrument: Instrument, value: float, attributes: Attributes = ()) -> None:
        self.add(instrument, value, attributes)

    def merge(
        self, instrument: Instrument, counts: Sequence[int], total: float, attributes: Attributes = ()
    ) -> None:
        distributions().add(instrument, counts, total, attributes)

    def _make(self, instrument: Instrument) -> Callable[[float, Mapping[str, Any]], object]:
        name, unit, description = instrument.name, instrument.unit, instrument.description
        take: Callable[[float, Mapping[str, Any]], object]
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
    """As OpenTelemetry takes them. Nobody may change it: it is the same one each time."""
    return dict(attributes)


@lru_cache(maxsize=1)
def meter() -> Any:
    """This library's meter, of whatever SDK the process has or will have; without one it does nothing."""
    from kafka_actors import __version__

    return api.get_meter("kafka_actors", __version__, schema_url=SCHEMA_URL)


_process: Recorder | None = None


def metered() -> Recorder:
    """The recorder of this process: clients that are made here record into it."""
    global _process
    if _process is None:
        _process = MeterRecorder(meter())
    return _process


def record_into(recorder: Recorder) -> None:
    """Clients that are made in this process from now on, by whomever, record into this."""
    global _process
    _process = recorder
