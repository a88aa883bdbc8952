"""What a sink is, defined and opened."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from kafka_actors.config import ClientConfig

logger = logging.getLogger(__name__)


class Origin(NamedTuple):
    """Which records something was made of: those of one partition, the first and the last offset included."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


def origin_of(batch: pa.RecordBatch) -> Origin:
    """Of a batch as it was read, which has at least one row."""
    offsets = batch.column("offset")
    return Origin(
        batch.column("topic")[0].as_py(),
        batch.column("partition")[0].as_py(),
        offsets[0].as_py(),
        offsets[-1].as_py(),
    )


class Writer(Protocol):
    """An open sink. Its methods are never called at the same time, but maybe from different threads."""

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Takes the rows, or raises and takes none of them; they may wait in memory."""
        ...

    def flush(self) -> None:
        """Returns when all that was written is safe, or raises why not."""
        ...

    def close(self) -> None: ...


class Closes(Protocol):
    """What has to be closed."""

    def close(self) -> None: ...


def close_all(*writers: Closes | None) -> None:
    """Closes each that there is. What wasn't flushed isn't committed, so that one can't be closed is only told."""
    for writer in writers:
        try:
            if writer is not None:
                writer.close()
        except Exception as error:  # users' classes raise anything
            logger.warning("%r could not be closed: %s: %s", writer, type(error).__name__, error)


@runtime_checkable
class Sink(Protocol):
    """A definition of a sink: a value that can be pickled."""

    def open(self, connection: ClientConfig) -> Writer:
        """In the worker. `connection` is how the job reaches its cluster."""
        ...
