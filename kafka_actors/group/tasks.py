"""`HeartbeatTask` and `AutoCommitTask`: what a coordinator does by itself, by the names other clients made known."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafka_actors.errors import KafkaActorsError

if TYPE_CHECKING:
    from .base_coordinator import BaseCoordinator
    from .consumer_coordinator import ConsumerCoordinator

log = logging.getLogger(__name__)

__all__ = ["AutoCommitTask", "HeartbeatTask"]


class HeartbeatTask:
    """The heartbeats of a coordinator. They are sent by its own loop; this turns them off and on."""

    def __init__(self, coordinator: BaseCoordinator) -> None:
        self._coordinator = coordinator

    def disable(self) -> None:
        """No more heartbeats: the session runs out."""
        self._coordinator.enable_heartbeats(False)

    def reset(self) -> None:
        """Heartbeats again, the next one an interval from now, with a session that begins now."""
        self._coordinator.enable_heartbeats(True)


class AutoCommitTask:
    """Commits what was consumed every `interval` seconds, while its coordinator is a member or assigns by hand."""

    def __init__(self, coordinator: ConsumerCoordinator, interval: float) -> None:
        self._coordinator = coordinator
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def reschedule(self, at: float | None = None) -> None:
        """The next commit is at `at` by the coordinator's clock, an interval from now by default."""
        self.stop()
        delay = self._interval if at is None else max(0.0, at - self._coordinator.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._start)

    def stop(self) -> None:
        """No next commit. One that is under way goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._commit())

    async def _commit(self) -> None:
        try:
            await self._coordinator.commit_consumed()
        except KafkaActorsError as error:
            log.warning("group %s: auto-commit failed: %s", self._coordinator.group_id, error)
        self.reschedule()
