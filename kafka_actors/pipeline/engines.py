"""Engines by name: what an installed package registers as an entry point, so that a definition imports none."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from kafka_actors.errors import UsageError

GROUP = "kafka_actors.engines"


def engine(name: str) -> Any:
    """What runs a pipeline, called with it and the engine's own arguments.

    Raises `UsageError` for an engine that no installed package registers, or that can't be imported.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        there = (
            ", ".join(sorted(found))
            or "none: install kafka-actors anew, its metadata are those of an older version"
        )
        raise UsageError(f"there is no engine {name!r}; those registered are {there}")
    try:
        return found[name].load()
    except ImportError as error:
        raise UsageError(
            f"the engine {name!r} can't be imported ({error}): pip install 'kafka-actors[{name}]'"
        ) from error
