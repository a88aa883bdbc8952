"""Set-up of an actor: its logs and telemetry, and the handles of the actors that it calls."""

from __future__ import annotations

from typing import Any

import msgspec

from kafka_actors.telemetry.logs import LogOrigin
from kafka_actors.telemetry.sdk import Settings

__all__ = ["ProcessSetup", "Wiring"]


class ProcessSetup(msgspec.Struct, frozen=True):
    """Logs and telemetry of one actor's process. `origin` names the actor in log lines; `telemetry` is None where the job
    is not measured."""

    log_level: int
    origin: LogOrigin
    telemetry: Settings | None = None


class Wiring(msgspec.Struct, frozen=True):
    """Live handles of the actors that a worker calls, under a version.

    `connections`: broker id → (incarnation, handle) of the connection actors on the worker's own node. A handle is None
    while there is no such actor. Handles are the runtime's own: they travel by its pickle, not as MessagePack.
    """

    version: int
    metadata: Any = None
    metadata_incarnation: int = 0
    coordinator: Any = None
    connections: dict[int, tuple[int, Any]] = {}
