"""`Autoscale`: the policy that a user sets in place of a number of workers."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from kafka_actors.errors import ConfigError, kind_of

__all__ = ["Autoscale", "checked_workers", "parsed_workers"]

RANGE = re.compile(r"(\d+)\s*\.\.\s*(\d+)")


class Autoscale(msgspec.Struct, frozen=True, kw_only=True):
    """Policy for the number of workers: as many as the records need, between `min` and `max`, and no more than partitions, or lanes of them.

        workers=ka.Autoscale(min=1, max=16, target_lag_seconds=30)

    Arguments:
        min: the smallest number of workers.
        max: the largest number of workers.
        target_lag_seconds: within how many seconds the backlog should be worked off. Rates are averaged over this time
            too.
        target_utilization: what part of their time workers should be busy with incoming records; the rest is for
            catching up.
        initial: how many workers to start with; None is `min`.
        upscale_delay_seconds: how long to wait, once all workers are up, before more are asked for again.
        downscale_delay_seconds: for how long fewer workers must have been enough before some are given up. It is also
            the shortest time between scaling up and down.
        request_resources: asks Ray's autoscaler for the resources that new workers need, until they are placed. Ray
            keeps one such request per cluster: say False if your own program uses Ray's `request_resources`.

    Raises `ConfigError`.
    """

    min: int = 1
    max: int
    target_lag_seconds: float = 30.0
    target_utilization: float = 0.7
    initial: int | None = None
    upscale_delay_seconds: float = 10.0
    downscale_delay_seconds: float = 120.0
    request_resources: bool = True

    def __post_init__(self) -> None:
        for name in ("min", "max"):
            _positive_integer(name, getattr(self, name))
        if self.max < self.min:
            raise ConfigError("workers.max", f"is {self.max}: must be at least min ({self.min})")
        if (
            self.initial is not None
            and not self.min <= _positive_integer("initial", self.initial) <= self.max
        ):
            raise ConfigError("workers.initial", f"is {self.initial}: must lie in {self}")
        if _number("target_lag_seconds", self.target_lag_seconds) < 1:
            raise ConfigError(
                "workers.target_lag_seconds", f"is {self.target_lag_seconds}: must be at least 1"
            )
        if not 0 < _number("target_utilization", self.target_utilization) <= 1:
            raise ConfigError(
                "workers.target_utilization", f"is {self.target_utilization}: must be above 0, and 1 at most"
            )
        for name in ("upscale_delay_seconds", "downscale_delay_seconds"):
            if _number(name, getattr(self, name)) < 0:
                raise ConfigError(f"workers.{name}", f"is {getattr(self, name)}: must not be negative")
        if not isinstance(self.request_resources, bool):
            raise ConfigError(
                "workers.request_resources", f"is {self.request_resources!r}: accepts True or False"
            )

    @property
    def first(self) -> int:
        """The number of workers with which a job starts."""
        return self.min if self.initial is None else self.initial

    def __str__(self) -> str:
        return f"{self.min}..{self.max}"


def _positive_integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"workers.{name}", f"is {value!r}: must be a whole number of at least 1")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"workers.{name}", f"is {value!r}, {kind_of(value)}: accepts a number")
    return value


def checked_workers(workers: Any) -> int | Autoscale:
    """Checks the argument of `Job(workers=…)` and `scale(…)`. Raises `ConfigError`."""
    if isinstance(workers, Autoscale):
        return workers
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ConfigError("workers", f"is {workers!r}: must be a whole number of at least 1, or an Autoscale")
    return workers


def parsed_workers(text: str) -> int | Autoscale:
    """Parses a number, `8`, or a range: `1..16` is `Autoscale(min=1, max=16)`. Raises `ConfigError`."""
    if match := RANGE.fullmatch(text.strip()):
        return Autoscale(min=int(match[1]), max=int(match[2]))
    if text.strip().isascii() and text.strip().isdigit() and int(text):
        return int(text)
    raise ConfigError("workers", f"is {text!r}: give a number such as 8, or a range such as 1..16")
