"""Durations that others write: ISO-8601's of fixed length, as Java's `Duration.parse` reads them (KIP-1106:
`by_duration:P7DT3H`), and the throttle times of brokers (KIP-219)."""

from __future__ import annotations

import re

MAX_THROTTLE_S = 300.0
"""A broker is asked again after so long. A small quota and a large answer give hours (`QuotaUtils.throttleTime`), an
`int32` days; but a quota may be raised, and a broker that means it answers later by itself: it reads no request before."""

_PATTERN = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


def parse_iso8601(text: str) -> float:
    """Returns the seconds of a duration such as `PT1H30M` or `P7D`. Raises `ValueError` with what is accepted."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 'PT1H30M' or 'P7D'")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def throttle_s(seconds: float) -> float:
    """Seconds for which a broker is left alone that asks for so many: `MAX_THROTTLE_S` at most."""
    return min(max(seconds, 0.0), MAX_THROTTLE_S)
