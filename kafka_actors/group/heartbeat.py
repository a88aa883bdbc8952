"""`Heartbeat` and `HeartbeatTask`: a member's heartbeats under the names of kafka-python's coordinator.

Heartbeats are decided upon by `machines/heartbeat_timer.py` and sent by the member's own loop: these are views on both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_actors.errors import ConfigError

from .machines.heartbeat_timer import HeartbeatTimer

if TYPE_CHECKING:
    from .base_coordinator import BaseCoordinator

__all__ = ["Heartbeat", "HeartbeatTask"]


class Heartbeat:
    """Says when a heartbeat is due and whether the session is still valid.

    session_timeout_ms, heartbeat_interval_ms: as the consumer's options of these names. clock: seconds,
    monotonic. Unlike in other clients, the session counts from the sending of what was acknowledged. Raises
    `ConfigError` for an interval that is not lower than the session timeout.
    """

    DEFAULT_CONFIG = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000}

    def __init__(
        self,
        *,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        clock: Callable[[], float] = time.monotonic,
        timer: HeartbeatTimer | None = None,
    ) -> None:
        if heartbeat_interval_ms >= session_timeout_ms:
            raise ConfigError(
                "heartbeat_interval_ms",
                f"is {heartbeat_interval_ms}: must be lower than session_timeout_ms ({session_timeout_ms})",
            )
        self._clock = clock
        self._timer = timer or HeartbeatTimer(heartbeat_interval_ms / 1000, session_timeout_ms / 1000)
        if timer is None:
            self._timer.reset(clock())

    def sent_heartbeat(self) -> None:
        """Notes that a heartbeat has just been sent."""
        self._timer.sent(self._clock())

    def received_heartbeat(self) -> None:
        """Notes that the last heartbeat sent has been acknowledged."""
        if self._timer.sent_at is not None:
            self._timer.acknowledged(self._timer.sent_at)

    @property
    def last_send(self) -> float | None:
        """When (by `clock`) a heartbeat was last sent; None if none was."""
        return self._timer.sent_at

    def should_heartbeat(self) -> bool:
        """Returns whether a heartbeat is due."""
        return self._timer.ttl(self._clock()) == 0

    def ttl(self) -> float:
        """Returns the seconds until the next heartbeat is due, 0 if it is."""
        return self._timer.ttl(self._clock())

    def session_expired(self) -> bool:
        """Returns whether the coordinator must be assumed to have given this member up."""
        return self._timer.session_expired(self._clock())

    def reset_session_timeout(self) -> None:
        """Begins a new session."""
        self._timer.reset(self._clock())


class HeartbeatTask:
    """Turns the heartbeats of a coordinator off and on."""

    def __init__(self, coordinator: BaseCoordinator) -> None:
        self._coordinator = coordinator

    def disable(self) -> None:
        """Sends no more heartbeats: the session runs out."""
        self._coordinator.enable_heartbeats(False)

    def reset(self) -> None:
        """Sends heartbeats again, the next one an interval from now, with a session that begins now."""
        self._coordinator.enable_heartbeats(True)
