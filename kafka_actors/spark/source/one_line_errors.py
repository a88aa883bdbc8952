"""Errors as Spark shows them: it gives the traceback of a Python error, and again for each try of a task."""

from __future__ import annotations

import logging
from types import TracebackType

from kafka_actors.errors import KafkaActorsError

logger = logging.getLogger(__name__)


class OneLineErrors:
    """Around what Spark calls: our errors say all in one line, so they come without a traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KafkaActorsError):
            logger.debug("where it was raised", exc_info=error)
            raise error.with_traceback(None) from None
