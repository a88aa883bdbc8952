"""Helpers for methods that Spark calls in its Python processes: errors in one line, and less work for garbage collections."""

from __future__ import annotations

import functools
import gc
import logging
from types import TracebackType

from kafka_actors.errors import KafkaActorsError

logger = logging.getLogger(__name__)


class OneLineErrors:
    """Context of a method that Spark calls: raises our errors without a traceback, as their one line says all. Spark repeats a
    traceback for each try of a task."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaActorsError):
            logger.debug("where it was raised", exc_info=error)
            raise error.with_traceback(None) from None


@functools.cache
def freeze_imports() -> None:
    """Excludes imported modules from garbage collections, to be called when a process has imported all that it needs. Spark
    collects garbage in a process after each task and each planning call; to go through the modules takes 10 to 40 ms each
    time."""
    gc.freeze()
