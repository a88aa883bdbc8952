"""Where a read starts and ends, as the options say it."""

from __future__ import annotations

from kafka_actors.errors import ConfigError
from kafka_actors.types import EARLIEST, LATEST

from .case_insensitive import LONG_MAX, CaseInsensitiveOptions
from .offset_json import (
    Bound,
    Fixed,
    GivenCommitted,
    GivenOffsets,
    GivenTimestamps,
    LogEnd,
    at,
    parse_offsets,
)

_START = "startingOffsets"
_END = "endingOffsets"


def start_of(given: CaseInsensitiveOptions, *, streaming: bool) -> Bound:
    """The start: by default the latest offsets in a stream, the earliest in a batch. Raises `ConfigError`."""
    timestamps = _timestamps(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    text = given.text(_START)
    word = ("latest" if streaming else "earliest") if text is None else text.lower()
    if word == "earliest":
        return LogEnd.EARLIEST
    if streaming:
        if word == "latest":
            return LogEnd.LATEST
        if word == "committed":
            return GivenCommitted()
        return _offsets(_START, str(text), (EARLIEST, LATEST))
    if word == "latest":
        raise ConfigError(_START, "can't be 'latest' in a batch read: accepts 'earliest' or offsets as JSON")
    if word == "committed":
        raise ConfigError(
            _START, "can't be 'committed' in a batch read: accepts 'earliest' or offsets as JSON"
        )
    return _offsets(_START, str(text), (EARLIEST,))


def end_of(given: CaseInsensitiveOptions) -> Fixed:
    """The end of a batch: by default the latest offsets. Raises `ConfigError`."""
    timestamps = _timestamps(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    text = given.text(_END)
    if text is None or text.lower() == "latest":
        return LogEnd.LATEST
    if text.lower() == "earliest":
        raise ConfigError(_END, "can't be 'earliest' in a batch read: accepts 'latest' or offsets as JSON")
    return _offsets(_END, text, (LATEST,))


_MEANINGS = {EARLIEST: "earliest", LATEST: "latest"}


def _offsets(name: str, text: str, special: tuple[int, ...]) -> GivenOffsets:
    offsets = parse_offsets(name, text)
    for tp, offset in offsets.items():
        if offset in _MEANINGS and offset not in special:
            raise ConfigError(
                name, f"has {offset} ({_MEANINGS[offset]}) for {at(tp)}: not possible in a batch read"
            )
        if offset < 0 and offset not in special:
            accepted = " or ".join(map(str, special))
            raise ConfigError(name, f"has {offset} for {at(tp)}: accepts offsets from 0 on, or {accepted}")
    return GivenOffsets(name, offsets)


def _timestamps(given: CaseInsensitiveOptions, everywhere: str, by_partition: str) -> GivenTimestamps | None:
    """Spark's order: the one timestamp for all wins over those by partition, and these over offsets."""
    if (timestamp := given.number(everywhere, None, 0, LONG_MAX)) is not None:
        return GivenTimestamps(everywhere, timestamp)
    if (text := given.text(by_partition)) is None:
        return None
    timestamps = parse_offsets(by_partition, text)
    for tp, timestamp in timestamps.items():
        if timestamp < 0:
            raise ConfigError(by_partition, f"has {timestamp} for {at(tp)}: accepts milliseconds since 1970")
    return GivenTimestamps(by_partition, None, timestamps)
