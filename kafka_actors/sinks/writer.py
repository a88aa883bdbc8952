"""Protocols of sinks: the definition, and the writer that it opens in a worker."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from kafka_actors.config import ClientConfig

logger = logging.getLogger(__name__)


class Origin(NamedTuple):
    """Records of one partition from which rows were made, by first and last offset, both included."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


def origin_of(batch: pa.RecordBatch) -> Origin:
    """The origin of a fetched batch, which has at least one row."""
    offsets = batch.column("offset")
    return Origin(
        batch.column("topic")[0].as_py(),
        batch.column("partition")[0].as_py(),
        offsets[0].as_py(),
        offsets[-1].as_py(),
    )


class Writer(Protocol):
    """Open sink. Its methods are called one at a time, but maybe from different threads."""

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Takes all rows, or raises and takes none. Rows may wait in memory."""
        ...

    def flush(self) -> None:
        """Returns once all rows are durable. Raises what keeps them from it."""
        ...

    def close(self) -> None: ...


class Closes(Protocol):
    """Object with a `close` method."""

    def close(self) -> None: ...


def close_all(*writers: Closes | None) -> None:
    """Closes all that are not None. A failure is only logged: rows that were not flushed are not committed."""
    for writer in writers:
        try:
            if writer is not None:
                writer.close()
        except Exception as error:  # users' classes raise anything
            logger.warning("%r could not be closed: %s: %s", writer, type(error).__name__, error)


@runtime_checkable
class Sink(Protocol):
    """Definition of a sink: a value that can be pickled."""

    def open(self, connection: ClientConfig) -> Writer:
        """Opens the sink in a worker. `connection` has the job's options for its cluster."""
        ...
