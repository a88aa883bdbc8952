"""The beginning of a consumer: connecting, and what is asked for behind that, which outlasts calls with a short limit."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future

from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError

from .consumer_io import BEHIND_CONNECTING, ConsumerIO

log = logging.getLogger(__name__)

SILENT_S = 2.0
"""So long a consumer tries to connect before it says that it still does."""


class Bootstrap:
    """Goes on in the IO thread while calls come and go; `done` is settled at its end."""

    def __init__(self, core: ConsumerIO, done: Future[None]) -> None:
        self.done = done
        self._core = core
        self._began = time.monotonic()
        self._told = False

    def why_not(self) -> KafkaActorsError:
        """Returns the error that keeps it from being done, for a call whose time is over."""
        waited = time.monotonic() - self._began
        if not self._core.client.snapshot.brokers:
            return self._core.client.not_connected(waited)
        return KafkaTimeoutError(f"no answer within {waited:.3g} s: {BEHIND_CONNECTING}")

    def tell(self) -> None:
        """Says in the log, once, why polls return nothing."""
        if not self._told and time.monotonic() - self._began >= SILENT_S:
            self._told = True
            log.warning("nothing can be read yet, trying on: %s", self.why_not())
