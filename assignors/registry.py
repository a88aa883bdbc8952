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
    """The names that `get` knows, sorted; registered ones are listed without being loaded."""
    return sorted({*_BUILT_IN, *_registered()})


def get(assignor: str | type[Assignor] | Assignor) -> Assignor:
    """Returns the assignor of that name, or the given object or class's object if it is one.

    Kafka's names always mean the built-in ones. Raises ValueError for a name that is unknown or whose package
    cannot be loaded, TypeError for an object that is no assignor.
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
