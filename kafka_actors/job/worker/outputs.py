"""`Outputs` of a worker: results to the sink, failed records to the dead-letter topic; both are flushed before a commit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import batches_of
from kafka_actors.config import ClientConfig, ConsumerConfig
from kafka_actors.errors import SinkError
from kafka_actors.sinks import Sink, Writer, close_all, origin_of

if TYPE_CHECKING:
    from kafka_actors.sinks import DeadLetters

__all__ = ["Outputs", "OutputsSpec"]


class OutputsSpec(msgspec.Struct, frozen=True):
    """Definition of the outputs: a sink, and a dead-letter topic, each None for none."""

    sink: Any = None
    dead_letter_topic: str | None = None


class Outputs:
    """Sink and dead-letter producer of one worker. Writing (in the processing thread) and flushing (in another) take turns."""

    def __init__(self, spec: OutputsSpec, config: ConsumerConfig | None) -> None:
        self._spec = spec
        self._config = config
        self._lock = threading.Lock()
        self._sink: Writer | None = None
        self._dead: DeadLetters | None = None
        self._unflushed = False

    @property
    def any(self) -> bool:
        """Whether there is an output."""
        return self._sink is not None or self._dead is not None

    @property
    def has_sink(self) -> bool:
        return self._spec.sink is not None

    def open(self) -> None:
        """Opens the sink and the producer. Raises what keeps them from opening."""
        connection = self._config or ClientConfig()
        if self._spec.sink is not None:
            sink: Sink = self._spec.sink
            self._sink = sink.open(connection)
        if self._spec.dead_letter_topic is not None:
            from kafka_actors.sinks.dead_letters import DeadLetters  # imports a producer
            from kafka_actors.sinks.kafka import producer_config

            group = (self._config.group_id if self._config is not None else None) or ""
            self._dead = DeadLetters(producer_config(connection, {}), self._spec.dead_letter_topic, group)

    def write(self, result: Any, batch: pa.RecordBatch) -> None:
        """Writes the function's result for a batch, all of it before a flush, and nothing if a part has the wrong type.
        Raises `TypeError` for what can't be written, and what the sink raises."""
        assert self._sink is not None  # a result without a sink was refused before
        parts = [part for part in batches_of(result, "process") if part.num_rows]
        with self._lock:
            for part in parts:
                self._unflushed = True
                self._sink.write(part, origin_of(batch))

    def dead_letter(self, records: pa.RecordBatch, error: BaseException) -> None:
        """Writes records on which the user's function failed to the dead-letter topic."""
        assert self._dead is not None  # on_error='dead_letter' wants a topic
        reason = f"{type(error).__name__}: {error}"
        with self._lock:
            self._unflushed = True
            count = records.num_rows
            self._dead.write(records, ["process"] * count, [reason] * count)

    @property
    def dead_letter_topic(self) -> str | None:
        return self._spec.dead_letter_topic

    def flush(self) -> None:
        """Returns when everything written before is stored. Raises `SinkError`."""
        with self._lock:
            if not self._unflushed:
                return
            try:
                for writer in (self._sink, self._dead):
                    if writer is not None:
                        writer.flush()
            except Exception as error:
                name = repr(self._spec.sink) if writer is self._sink else repr(self._dead)
                raise SinkError(name, f"{type(error).__name__}: {error}") from error
            self._unflushed = False

    def close(self) -> None:
        """Closes the outputs. Results that weren't flushed are lost, but their offsets weren't committed either."""
        close_all(self._sink, self._dead)
