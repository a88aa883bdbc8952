"""`PipelineFunction`, the user's function of a pipeline's job: all stages on each batch, then the sinks and dead letters."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import rows_of
from kafka_actors.base.tasks import carried_out_async
from kafka_actors.events import EventSink, NewSchemaSeen, log_event
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FailedRecord, FusedSteps, events_of, of_policy
from kafka_actors.pipeline.rows import StageRows
from kafka_actors.pipeline.schema_stages import SchemaStage
from kafka_actors.pipeline.source import producer_config
from kafka_actors.pipeline.stages import WriteKafka
from kafka_actors.schemas.registry import SharedRegistry
from kafka_actors.sinks import DeadLetters, KafkaSink, close_all
from kafka_actors.sinks.sink import DeferredWrites, WriteTurns
from kafka_actors.sinks.stage import OpenSinks, opened
from kafka_actors.sinks.transactional import ProducerSlot
from kafka_actors.types import TopicPartition


class PipelinePlan(msgspec.Struct, frozen=True):
    """A pipeline on its way to the workers. `by_partition`: the records of a partition go through it in their order."""

    pipeline: Pipeline
    group_id: str
    by_partition: bool = True


def function_of(plan: PipelinePlan) -> type[PipelineFunction | AsyncPipelineFunction]:
    """Makes a class whose constructor has no arguments, as `Job(process=…)` wants it; an async one for async stages."""

    class Bound(PipelineFunction):
        bound = plan
        by_record = plan.pipeline.by_record

    class AsyncBound(AsyncPipelineFunction):
        bound = Bound
        by_record = plan.pipeline.by_record

    made = AsyncBound if plan.pipeline.is_async else Bound
    made.__name__ = "the pipeline"  # what a start says that it waits for
    return made


class PipelineFunction:
    """Runs a pipeline in one worker; its constructor makes users' classes, the sinks and the dead-letter producer.

    `flush` may be called while a batch is being worked on: writing and flushing take turns.
    """

    bound: ClassVar[PipelinePlan]
    by_record: ClassVar[bool]

    @classmethod
    def transactional_sinks(cls) -> list[tuple[str, object]]:
        """The sinks, and dead letters with options of their own, by their names, for a job that delivers exactly once."""
        pipeline = cls.bound.pipeline
        stages = [sink.step.stage for sink in pipeline.check("ray").sinks]
        found: list[tuple[str, object]] = [
            (s.name, KafkaSink(s.topic, config=s.options) if isinstance(s, WriteKafka) else s) for s in stages
        ]
        if pipeline.dead_letter_options:
            dead_letters = KafkaSink(pipeline.dead_letter_topic, config=pipeline.dead_letter_options)
            found.append(("dead_letters", dead_letters))
        return found

    def __init__(self, events: EventSink = log_event, slot: ProducerSlot | None = None) -> None:
        """`slot`: the producer of a worker with transactions; then results are written when the worker says so."""
        pipeline = self.bound.pipeline
        checked = pipeline.check("ray")
        assert pipeline.source is not None  # the check asks for it, and on Ray for a sink
        self._events = events
        self._turns = WriteTurns()
        self._slot = slot
        self._policies = {step.stage.name: step.on_error for step in checked.with_sinks}
        self._stages = FusedSteps(checked.steps, retries=pipeline.retries)
        open_sink = partial(opened, slot=slot, by_partition=self.bound.by_partition)
        self._sinks = OpenSinks(checked.sinks, pipeline.source, pipeline.retries, open_sink)
        self._dead: DeadLetters | None = None
        if pipeline.dead_letter_topic is not None:
            config = producer_config("dead_letters", pipeline.source, pipeline.dead_letter_options)
            self._dead = DeadLetters(config, pipeline.dead_letter_topic, self.bound.group_id, slot)

    def __call__(self, batch: pa.RecordBatch) -> DeferredWrites | None:
        """Processes one batch. Raises `StageError`, and what keeps a dead letter from being sent."""
        return self._results(batch, *self._stages.run(batch))

    def call_try(self, batch: pa.RecordBatch, attempt: int) -> DeferredWrites | None:
        """Processes one batch whose attempts the worker counts. Raises as `__call__`, and before the last attempt what a function raises."""
        return self._results(batch, *self._stages.run(batch, attempt=attempt), attempt)

    async def call_async(self, batch: pa.RecordBatch, attempt: int | None = None) -> DeferredWrites | None:
        """Processes one batch, in whose async stages others may go on. Raises as `__call__`, with an `attempt` as `call_try`."""
        output = await carried_out_async(self._stages.calls(batch, attempt=attempt))
        return self._results(batch, *output, attempt)

    def _results(
        self,
        batch: pa.RecordBatch,
        rows: list[StageRows],
        failures: list[FailedRecord],
        attempt: int | None = None,
    ) -> DeferredWrites | None:
        """Writes now, or leaves it to the worker."""
        if self._slot is not None:
            return DeferredWrites(lambda: self._put_out(batch, rows, failures))
        self._put_out(batch, rows, failures, attempt)
        return None

    def _put_out(
        self,
        batch: pa.RecordBatch,
        rows: list[StageRows],
        failures: list[FailedRecord],
        attempt: int | None = None,
    ) -> None:
        """Writes the rows of a batch to the sinks, and takes out the records that failed. Nothing in it is awaited: it holds
        a lock for which a flush in another thread may wait."""
        with self._turns:  # a flush comes before the whole batch, or after it
            for part in rows:
                self._sinks.write(part, batch, failures, attempt)
                attempt = None
        if failures:
            self._take_out(batch, failures)

    def _take_out(self, batch: pa.RecordBatch, failures: list[FailedRecord]) -> None:
        """Sends dead letters, and publishes events of these and of skipped records: one for the records of a stage."""
        dead = of_policy(failures, self._policies, "dead_letter")
        if dead:
            assert self._dead is not None
            records = rows_of(batch, [f.record for f in dead])
            with self._turns:
                self._dead.write(records, [f.stage for f in dead], [f.reason for f in dead])
        for event in (
            *events_of(of_policy(failures, self._policies, "skip"), batch),
            *events_of(dead, batch, self._dead.topic if self._dead else None),
        ):
            self._events(event)

    @classmethod
    def chosen_schemas(cls) -> dict[str, str]:
        """Schemas of registries by which stages read and write, by the stages' names."""
        chosen = {stage.name: getattr(stage, "chosen", "") for stage in cls.bound.pipeline.stages}
        return {name: schema for name, schema in chosen.items() if schema}

    @classmethod
    def registries(cls) -> list[SharedRegistry]:
        """The registries that values' schemas are asked of, each once, in the order of the stages."""
        readers = [s.reader for s in cls.bound.pipeline.stages if isinstance(s, SchemaStage)]
        found = {id(r.registry): r.registry for r in readers if r is not None}
        return [one for one in found.values() if isinstance(one, SharedRegistry)]

    def waits_for(self, partition: TopicPartition) -> str:
        """Says what a batch of a partition waits for: a stage's registry. For any thread."""
        return self._stages.waits_for(partition)

    def new_schemas(self) -> list[NewSchemaSeen]:
        """Schemas of values that weren't known when the pipeline was made ready. For any thread."""
        return self._stages.new_schemas

    def flush(self) -> None:
        """Returns when all results and dead letters are stored. Raises `SinkError`."""
        dead = [] if self._dead is None else [("dead_letters", self._dead)]
        self._turns.flush([*self._sinks.writers, *dead])

    def close(self) -> None:
        self._stages.close()
        close_all(self._sinks, self._dead)

    async def close_async(self) -> None:
        await carried_out_async(self._stages.closing())
        close_all(self._sinks, self._dead)


class AsyncPipelineFunction:
    """Runs a `PipelineFunction` with async stages as the async function of a job: calls of different partitions overlap."""

    bound: ClassVar[type[PipelineFunction]]
    by_record: ClassVar[bool]

    @classmethod
    def transactional_sinks(cls) -> list[tuple[str, object]]:
        return cls.bound.transactional_sinks()

    def __init__(self, events: EventSink = log_event, slot: ProducerSlot | None = None) -> None:
        self._function = self.bound(events, slot)

    async def __call__(self, batch: pa.RecordBatch) -> DeferredWrites | None:
        return await self._function.call_async(batch)

    async def call_try(self, batch: pa.RecordBatch, attempt: int) -> DeferredWrites | None:
        return await self._function.call_async(batch, attempt)

    @classmethod
    def chosen_schemas(cls) -> dict[str, str]:
        return cls.bound.chosen_schemas()

    @classmethod
    def registries(cls) -> list[SharedRegistry]:
        return cls.bound.registries()

    def waits_for(self, partition: TopicPartition) -> str:
        return self._function.waits_for(partition)

    def new_schemas(self) -> list[NewSchemaSeen]:
        return self._function.new_schemas()

    def flush(self) -> None:
        self._function.flush()

    async def close(self) -> None:
        await self._function.close_async()
