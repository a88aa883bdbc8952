"""Sessions of Spark: names under which a pipeline's data sources are registered in them, and the active session of a thread.

Spark has no way to take a data source back out of a session, but in the same session another one may take its name. In
another session of the application it may not: Spark compares with the names of the session that is active at the time,
and raises DATA_SOURCE_ALREADY_EXISTS.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import uuid
from typing import Any
from weakref import WeakKeyDictionary

_PROCESS = uuid.uuid4().hex  # sessions of Spark Connect may be shared by processes
_lock = threading.Lock()
_free: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()
"""Numbers in names that are registered in a session and were given back, by session."""
_numbers = itertools.count()


class SourceNames:
    """Names for the data sources of one run, or of one DataFrame, in one session. No other run has them until they are
    given back, and no other session ever."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._taken: list[int] = []

    def take(self) -> str:
        """A free name: one that was given back in this session, or else a new one."""
        with _lock:
            free = _free.setdefault(self._session, [])
            number = heapq.heappop(free) if free else next(_numbers)
        self._taken.append(number)
        return f"kafka_actors_pipeline_{_PROCESS}_{number}"

    def give_back(self) -> None:
        """Frees the names, to be called when Spark looks them up no more. A second call changes nothing."""
        taken, self._taken = self._taken, []
        with _lock:
            for number in taken:
                heapq.heappush(_free.setdefault(self._session, []), number)


def enter(spark: Any) -> None:
    """Makes a session the active one of this thread, in which Spark looks up Python data sources. `createDataFrame` does that."""
    spark.createDataFrame([], "nothing INT")


def context_of(spark: Any) -> Any:
    """The SparkContext, None over Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # each version has its own
        return None
