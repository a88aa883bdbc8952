"""Assignors by name: Kafka's own, and those that installed packages register as entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from assignors.range import RangeAssignor
from assignors.roundrobin import RoundRobinAssignor
from assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from assignors.types import Assignor

ENTRY_POINT_GROUP = "kafka_actors.assignors"
_BUILT_IN: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def available() -> list[str]:
    """Returns the sorted names of all assignors; registered ones are not loaded."""
    return sorted({*_BUILT_IN, *_registered()})


def get(assignor: str | type[Assignor] | Assignor) -> Assignor:
    """Returns an assignor: the one of a name, an object of a class, or the object itself.

    Kafka's names always mean the built-in assignors. Raises ValueError for a name that is unknown or whose package can't
    be loaded, TypeError for an object that isn't an assignor.
    """
    if not isinstance(assignor, str):
        return _checked(assignor, repr(assignor))
    if assignor in _BUILT_IN:
        return _BUILT_IN[assignor]()
    entry = _registered().get(assignor)
    if entry is None:
        raise ValueError(f"unknown assignor {assignor!r}; there are {', '.join(available())}")
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"assignor {assignor!r} cannot be loaded from {entry.value}: {error}") from error
    return _checked(loaded, f"{entry.value}, registered as {assignor!r},")


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def _checked(candidate: object, called: str) -> Assignor:
    made = candidate() if isinstance(candidate, type) else candidate
    if not (isinstance(made, Assignor) and callable(made.assign) and isinstance(made.name, str)):
        raise TypeError(f"{called} is no assignor: it needs name, protocol and assign(partitions, members)")
    if made.protocol not in ("eager", "cooperative"):
        raise TypeError(f"{called} has the protocol {made.protocol!r}; it must be 'eager' or 'cooperative'")
    return made
