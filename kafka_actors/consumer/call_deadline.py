"""The time that one call of a consumer may take, connecting included."""

from __future__ import annotations

import time
from typing import Any

from kafka_actors.base.arguments import seconds_of


class CallLimit:
    """`timeout_ms` (None: the default) from now on, for all that a call waits for."""

    __slots__ = ("_end", "seconds")

    def __init__(self, timeout_ms: Any) -> None:
        self.seconds = seconds_of(timeout_ms)
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        """Seconds, 0 where it has passed."""
        return max(self._end - time.monotonic(), 0.0)
