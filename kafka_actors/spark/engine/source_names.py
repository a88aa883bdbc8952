"""The names under which a pipeline's data sources are registered in sessions.

Spark has no way to take a data source back out of a session, but another one may take its name.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import uuid

_PROCESS = uuid.uuid4().hex  # sessions of Spark Connect may be shared by processes
_lock = threading.Lock()
_free: list[int] = []
_numbers = itertools.count()


class SourceNames:
    """Those of one run, or of one DataFrame: nobody else has them until they are given back."""

    def __init__(self) -> None:
        self._taken: list[int] = []

    def take(self) -> str:
        """A name that nobody has: one that was given back, if there is any."""
        with _lock:
            number = heapq.heappop(_free) if _free else next(_numbers)
        self._taken.append(number)
        return f"kafka_actors_pipeline_{_PROCESS}_{number}"

    def give_back(self) -> None:
        """When Spark looks them up no more: others take their place in the session. Safe to call twice."""
        taken, self._taken = self._taken, []
        with _lock:
            for number in taken:
                heapq.heappush(_free, number)
