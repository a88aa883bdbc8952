"""`Outputs` of a worker: results to the sinks, failed records to the dead-letter topic; all are flushed before a commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import batches_of
from kafka_actors.base.callables import described, is_async_generator, is_generator
from kafka_actors.config import ClientConfig, ConsumerConfig
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.sinks.sink import Sink, Writer, WriteTurns, close_all, origin_of

if TYPE_CHECKING:
    from kafka_actors.producer.futures import BatchFuture
    from kafka_actors.sinks import DeadLetters
    from kafka_actors.sinks.dead_letters import RetryWriter
    from kafka_actors.sinks.transactional import ProducerSlot

__all__ = ["Outputs", "OutputsSpec"]

logger = logging.getLogger(__name__)

NO_SINK = "and the job has no sink=: give it one, or return None"
LACKING_S = 5.0
"""Seconds for which a retry topic counts as without a partition. The producer asks a broker each time, while other writes wait for their turn."""


def check_returns(option: str, call: Any, has_sink: bool) -> None:
    """Raises `ConfigError` for a function whose results can't be written, as far as its definition tells."""
    if is_async_generator(call):
        raise ConfigError(option, "is an async generator: return the batches, or a list of them")
    if is_generator(call) and not has_sink:
        raise ConfigError(option, f"is a generator, {NO_SINK}")


class OutputsSpec(msgspec.Struct, frozen=True):
    """Definition of the outputs: sinks, each of which gets all results, a dead-letter topic, None for none, and retry topics.

    `producer_options`: of the one producer that writes all of them in transactions; None for at least once.
    """

    sinks: tuple[Sink, ...] = ()
    dead_letter_topic: str | None = None
    producer_options: Mapping[str, Any] | None = None
    tiers: RetryTiers = RetryTiers()


class Outputs:
    """Sinks and dead-letter producer of one worker. Writing (in the processing thread) and flushing (in another) take turns, but for sinks
    that allow both at once: an async function's event loop would stand still while brokers are waited for."""

    def __init__(
        self, spec: OutputsSpec, config: ConsumerConfig | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spec = spec
        self._config = config
        self._clock = clock
        self._turns = WriteTurns()
        self._sinks: list[tuple[str, Writer]] = []
        self._dead: DeadLetters | None = None
        self._retries: RetryWriter | None = None
        self._lacking: dict[tuple[str, int], float] = {}
        """Partitions that retry topics lack, and until when that is not asked again."""
        self.slot: ProducerSlot | None = None
        """The producer of a worker with transactions."""
        if spec.producer_options is not None:
            from kafka_actors.sinks.transactional import ProducerSlot  # imports a producer

            self.slot = ProducerSlot()

    @property
    def any(self) -> bool:
        """Whether there is an output."""
        return bool(self._sinks) or self._dead is not None or self._retries is not None

    @property
    def tiers(self) -> RetryTiers:
        return self._spec.tiers

    @property
    def has_sink(self) -> bool:
        return bool(self._spec.sinks)

    def open(self) -> None:
        """Opens the sinks and the producer. Raises what keeps them from opening, with a note that names a sink."""
        connection = self._config or ClientConfig()
        for sink in self._spec.sinks:
            try:
                self._sinks.append((repr(sink), self._writer(sink, connection)))
            except Exception as error:
                error.add_note(f"raised by the sink {sink!r}")
                raise
        if self._spec.dead_letter_topic is not None:
            from kafka_actors.sinks.dead_letters import DeadLetters  # imports a producer
            from kafka_actors.sinks.kafka import producer_config

            group = (self._config.group_id if self._config is not None else None) or ""
            options = self._spec.producer_options or {}
            self._dead = DeadLetters(
                producer_config(connection, options), self._spec.dead_letter_topic, group, self.slot
            )
            if self._spec.tiers:
                from kafka_actors.sinks.dead_letters import RetryWriter  # as above

                self._retries = RetryWriter(producer_config(connection, options), group)

    def _writer(self, sink: Sink, connection: ClientConfig) -> Writer:
        if self.slot is None:
            return sink.open(connection)
        from kafka_actors.sinks.kafka import KafkaSink, producer_config  # imports a producer
        from kafka_actors.sinks.transactional import transactional_writer

        assert isinstance(sink, KafkaSink)  # the job refuses others
        return transactional_writer(self.slot, producer_config(connection, sink.options), sink.topic)

    def write(self, result: Any, batch: pa.RecordBatch) -> None:
        """Writes the function's result for a batch to each sink, all of it before a flush, and nothing if a part has the wrong
        type. Raises `TypeError` for what can't be written, and what a sink raises, with a note that names it; sinks before it
        have the rows then, and get them again with the next call for these records."""
        parts = [part for part in batches_of(result, "process") if part.num_rows]
        if not parts:
            return
        with self._turns:
            for name, sink in self._sinks:
                try:
                    for part in parts:
                        sink.write(part, origin_of(batch))
                except Exception as error:
                    error.add_note(f"raised by the sink {name}")
                    raise

    def dead_letter(self, records: pa.RecordBatch, error: BaseException) -> None:
        """Writes records on which the user's function failed to the dead-letter topic."""
        assert self._dead is not None  # on_error='dead_letter' wants a topic
        reason = described(error)
        with self._turns:
            count = records.num_rows
            self._dead.write(records, ["process"] * count, [reason] * count)

    def retry_later(
        self,
        records: pa.RecordBatch,
        reasons: Sequence[str],
        tier: int,
        attempts: Sequence[int],
        not_before: Sequence[int],
    ) -> BatchFuture | None:
        """Writes records into the retry topic of a tier. `attempts`: calls that have failed on each; `not_before`: when each is tried again,
        in milliseconds since 1970. Returns the outcome to come; None where the topic lacks their partition, since the source has grown
        before it. With `keep_order` nothing of a partition is read then, so that it is an error."""
        assert self._retries is not None  # of a job with tiers, and `open` comes first
        topic = self._spec.tiers.topics[tier - 1]
        at = topic, records["partition"][0].as_py()  # all are of one
        with self._turns:
            if self._clock() < self._lacking.get(at, 0.0):
                return None
            try:
                return self._retries.write(records, topic, reasons, tier, attempts, not_before)
            except UsageError as lacking:
                if self._spec.tiers.keep_order:
                    raise
                self._lacking[at] = self._clock() + LACKING_S
                logger.warning("%s: what is to be tried again is a dead letter", lacking)
                return None

    @property
    def dead_letter_topic(self) -> str | None:
        return self._spec.dead_letter_topic

    def flush(self) -> None:
        """Returns when everything written before is stored. Raises `SinkError`."""
        more = [(repr(each), each) for each in (self._retries, self._dead) if each is not None]
        self._turns.flush([*self._sinks, *more])

    def close(self) -> None:
        """Closes the outputs. Results that weren't flushed are lost, but their offsets weren't committed either."""
        close_all(*(sink for _, sink in self._sinks), self._retries, self._dead)
