"""How the process of an actor is set up."""

from __future__ import annotations

import msgspec

from kafka_actors.telemetry.logs import LogOrigin
from kafka_actors.telemetry.settings import Settings

__all__ = ["ProcessSetup"]


class ProcessSetup(msgspec.Struct, frozen=True):
    """What it logs, who it is, and how it is measured, if it is."""

    log_level: int
    origin: LogOrigin
    telemetry: Settings | None = None
