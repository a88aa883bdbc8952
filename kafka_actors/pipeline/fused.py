"""Fused stages: the Arrow stages that run in one process, one after the other on each batch that is read.

A `StageGuard` keeps the errors of one stage: a user's function is called again, then the batch is bisected until the failing
records are known, which become `FailedRecord`s, or the stage raises a `StageError`, as its `on_error` says. Its generators yield
what to do next, calls and waits. `FusedSteps.run` carries these out; with async functions an engine does, in an event loop.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from kafka_actors.base.backoff import CALL_BACKOFF_MAX_S, CALL_BACKOFF_S, exponential_backoff
from kafka_actors.base.bisect import Bisection
from kafka_actors.errors import StageError
from kafka_actors.events import Event, NewSchemaSeen, RecordsDeadLettered, RecordsSkipped
from kafka_actors.schemas.errors import SchemaRegistryUnavailableError
from kafka_actors.types import TopicPartition

from .casts import CastError, one_line
from .engines import CheckedStage
from .rows import NO_RECORD, StageRows, rows_of
from .stage_steps import CallStep, RecordwiseStep, StageStep, make
from .stages import OnError

REGISTRY_BACKOFF_MAX_S = 10.0
"""Longest wait until a registry that can't be reached is asked again."""


class FailedRecord(NamedTuple):
    """Record that a stage could not process, by its number in the batch that was read, with the reason."""

    record: int
    stage: str
    reason: str


def of_policy(
    failures: Sequence[FailedRecord], policies: Mapping[str, OnError], policy: OnError
) -> list[FailedRecord]:
    """The first failure of each record in stages with this policy, in the order of records; `policies` are by stage name.

    Several rows of one record may fail, and a row in several sinks: a record that one stage skips may be another's dead letter.
    """
    first: dict[int, FailedRecord] = {}
    for failure in failures:
        if policies[failure.stage] == policy:
            first.setdefault(failure.record, failure)
    return [first[record] for record in sorted(first)]


def events_of(
    failures: Sequence[FailedRecord], source: pa.RecordBatch, dead_letter_topic: str | None = None
) -> Iterator[Event]:
    """Events for records of `source` that failed, one for each stage and partition: dead-lettered to a topic, or skipped."""
    where = _place(source)
    for (stage, topic, partition), same in groupby(sorted(failures, key=where), key=where):
        found = list(same)
        first, last = (source.column("offset")[f.record].as_py() for f in (found[0], found[-1]))
        message = f"stage {stage}: {len(found)} records, the first: {found[0].reason}"
        if dead_letter_topic is None:
            yield RecordsSkipped(topic, partition, first, last, message)
        else:
            yield RecordsDeadLettered(topic, partition, first, last, len(found), dead_letter_topic, message)


def _place(source: pa.RecordBatch) -> Callable[[FailedRecord], tuple[str, str, int]]:
    topics, partitions = source.column("topic"), source.column("partition")

    def place(failure: FailedRecord) -> tuple[str, str, int]:
        topic, partition = topics[failure.record].as_py(), partitions[failure.record].as_py()
        return failure.stage, topic or "", -1 if partition is None else partition

    return place


logger = logging.getLogger(__name__)

FAILURES = (Exception, SystemExit)
"""Errors that count as ones of the user's code."""


T = TypeVar("T")


StageCalls: TypeAlias = Generator[Callable[[], Any] | float, Any, T]
"""Calls to make, and waits in seconds; after a call it is sent the result, or the error that counts as one of the user's code."""


def carried_out(calls: StageCalls[T], sleep: Callable[[float], object]) -> T:
    """Carries out calls and waits of plain functions, and returns their end result. Raises as the generator."""
    answer: Any = None
    try:
        while True:
            step = calls.send(answer)
            if isinstance(step, float):
                sleep(step)
                answer = None
                continue
            try:
                answer = step()
            except FAILURES as error:
                answer = error
    except StopIteration as end:
        result: T = end.value
        return result


class StageGuard:
    """One stage with its `on_error` policy. Under "skip" and "dead_letter" it adds records that fail to the list `failures`."""

    def __init__(
        self,
        name: str,
        policy: OnError,
        retries: int,
        made: StageStep | RecordwiseStep,
        sleep: Callable[[float], object],
    ) -> None:
        self.name = name
        self.waits: dict[TopicPartition, str] = {}
        """Reasons why the batches of partitions wait at the moment."""
        self.made = made
        self._policy = policy
        self._retries = retries
        self._sleep = sleep

    def run(
        self,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
        attempt: int | None = None,
    ) -> list[StageRows]:
        """Runs a stage that is not async on rows. Raises as `calls`."""
        return carried_out(self.calls(rows, source, failures, attempt), self._sleep)

    def calls(
        self,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
        attempt: int | None = None,
    ) -> StageCalls[list[StageRows]]:
        """Yields the calls of the stage for rows, and returns what they made. Raises `StageError` under "fail"; where the caller counts the
        attempts, also the stage's own error, for which there is to be a further one."""
        if isinstance(self.made, RecordwiseStep):
            return [(yield from self._recordwise(self.made, rows, source, failures))]
        return (yield from self._guarded(self.made, rows, source, failures, attempt))

    def _recordwise(
        self,
        made: RecordwiseStep,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
    ) -> StageCalls[StageRows]:
        """Runs a step that returns what fails. A registry that can't be asked is no record's error: it is asked again until it answers."""
        attempt = 0
        try:
            while True:
                try:
                    output, failed = made.run(rows, source)
                    break
                except SchemaRegistryUnavailableError as error:
                    attempt += 1
                    partition = _partition_of(source)
                    self.waits[partition] = f"waits for the registry: stage {self.name}: {error}"
                    logger.warning("%s-%d: %s", *partition, self.waits[partition])
                    yield exponential_backoff(attempt, CALL_BACKOFF_S, REGISTRY_BACKOFF_MAX_S)
        finally:  # also where the call is cancelled
            if attempt:
                self.waits.pop(_partition_of(source), None)
        if failed and self._policy == "fail":
            record, reason = failed[0]
            last = int(rows.records(source.num_rows)[-1]) if (rows.origin == NO_RECORD).any() else record
            raise stage_error(self.name, source, record, last, 1, reason)
        failures += (FailedRecord(record, self.name, reason) for record, reason in failed)
        return output

    def _guarded(
        self,
        made: StageStep,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
        counted: int | None,
    ) -> StageCalls[list[StageRows]]:
        attempt = counted or 1
        while isinstance(answer := (yield _call_of(made, rows, source)), BaseException):
            permanent = not made.retriable or isinstance(answer, CastError)
            if attempt <= self._retries and not permanent:
                if counted is not None:
                    if (note := f"raised in stage {self.name}") not in getattr(answer, "__notes__", ()):
                        answer.add_note(note)  # once, if a function raises one object again and again
                    raise answer
                self._log_retry(answer, attempt)
                yield exponential_backoff(attempt, CALL_BACKOFF_S, CALL_BACKOFF_MAX_S)
                attempt += 1
                continue
            if self._policy == "fail":
                records = rows.records(source.num_rows)
                raise stage_error(
                    self.name, source, int(records[0]), int(records[-1]), attempt, _text_of(answer)
                ) from answer
            return (yield from self._bisected(made, rows, source, failures, answer))
        output: list[StageRows] = answer
        return output

    def _bisected(
        self,
        made: StageStep,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
        error: BaseException,
    ) -> StageCalls[list[StageRows]]:
        """Has halves of the rows run until single rows fail; in order, so that the output is in order."""
        found: list[StageRows] = []
        bisection = Bisection(rows.batch.num_rows)
        if bisection.part is None:
            failures += self._failed(rows, source, error)
        while (part := bisection.part) is not None:
            half = rows.slice(*part)
            answer = yield _call_of(made, half, source)
            if not isinstance(answer, BaseException):
                found += answer
                bisection.succeeded()
            elif bisection.failed():
                failures += self._failed(half, source, answer)
        return found

    def _failed(
        self, rows: StageRows, source: pa.RecordBatch, error: BaseException
    ) -> Iterator[FailedRecord]:
        return (FailedRecord(int(r), self.name, _text_of(error)) for r in rows.records(source.num_rows))

    def _log_retry(self, error: BaseException, attempt: int) -> None:
        logger.warning(
            "stage %s failed (%s); retry %d of %d", self.name, _text_of(error), attempt, self._retries
        )


def _partition_of(source: pa.RecordBatch) -> TopicPartition:
    """The partition of a batch, which is of one."""
    topic, partition = source.column("topic")[0].as_py(), source.column("partition")[0].as_py()
    return TopicPartition(topic or "", -1 if partition is None else partition)


def _call_of(made: StageStep, rows: StageRows, source: pa.RecordBatch) -> Callable[[], Any]:
    """Call of a stage with rows; its result has to be awaited if the stage's function is async."""
    if isinstance(made, CallStep) and made.is_async:
        return partial(made.run_async, rows, source)
    return partial(made.run, rows, source)


def _text_of(error: BaseException) -> str:
    name, line = type(error).__name__, one_line(error)
    return name if line == name else f"{name}: {line}"


def stage_error(
    stage: str, source: pa.RecordBatch, first: int, last: int, attempts: int, reason: str
) -> StageError:
    """The error of a stage on the records with these numbers in the batch that was read."""
    topic = source.column("topic")[first].as_py()
    if topic is None:
        return StageError(stage, "", -1, -1, -1, attempts, reason)
    partition = source.column("partition")[first].as_py()
    begin, end = (source.column("offset")[record].as_py() for record in (first, last))
    return StageError(stage, topic, partition, begin, end, attempts, reason)


class StageOutput(NamedTuple):
    """Result of a batch: rows, in order, and the records that failed, by stage; see `of_policy`."""

    rows: list[StageRows]
    failures: list[FailedRecord]


class FusedSteps:
    """Stages instantiated in this process, users' classes included. When a constructor raises, the stages before it are
    closed and the error is raised.

    `retries`: how often a user's function is called again; `sleep` waits in between.

    With an async function (`is_async`) an engine carries out `calls` and `closing` in an event loop, in place of `run` and `close`.

    An `attempt` says that whoever calls counts the attempts, from 1, and calls with the same batch again: all but the last raise a function's
    error at once, so that nothing is held by a pause in between.
    """

    def __init__(
        self,
        steps: Iterable[CheckedStage],
        *,
        retries: int = 0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._guards: list[StageGuard] = []
        self._sleep = sleep
        try:
            for step in steps:
                self._guards.append(
                    StageGuard(step.stage.name, step.on_error, retries, _instantiated(step), sleep)
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_async(self) -> bool:
        """Whether a stage has an async function."""
        return any(isinstance(guard.made, CallStep) and guard.made.is_async for guard in self._guards)

    def waits_for(self, partition: TopicPartition) -> str:
        """Says what a batch of a partition waits for at the moment; empty for nothing. For any thread."""
        found = (guard.waits.get(partition) for guard in self._guards)
        return next(filter(None, found), "")

    @property
    def new_schemas(self) -> list[NewSchemaSeen]:
        """Schemas of values so far that weren't known when the pipeline was made ready."""
        found = [guard.made.new_schemas for guard in self._guards if isinstance(guard.made, RecordwiseStep)]
        return [event for new in found if new is not None for event in new.events]

    def run(
        self, source: pa.RecordBatch, begun: StageRows | None = None, attempt: int | None = None
    ) -> StageOutput:
        """Processes a batch of one partition, with the columns of `SCHEMA`; `begun` are the rows that earlier stages made of
        it in another process. Raises `StageError`, and with an `attempt` also a function's own error."""
        return carried_out(self.calls(source, begun, attempt), self._sleep)

    def calls(
        self, source: pa.RecordBatch, begun: StageRows | None = None, attempt: int | None = None
    ) -> StageCalls[StageOutput]:
        """Yields the calls that process a batch as `run`; those for batches of different partitions may overlap."""
        rows = [rows_of(source) if begun is None else begun]
        failures: list[FailedRecord] = []
        for guard in self._guards:
            output: list[StageRows] = []
            for part in rows:
                output += yield from guard.calls(part, source, failures, attempt)
            rows = [made for made in output if made.batch.num_rows]
        return StageOutput(rows, failures)

    def close(self) -> None:
        """Closes users' objects: all of them, even if one raises, which is logged."""
        carried_out(self.closing(), self._sleep)

    def closing(self) -> StageCalls[None]:
        """Yields the calls that close users' objects."""
        for guard in self._guards:
            answer = yield guard.made.close
            if isinstance(answer, BaseException):
                logger.error("stage %s: close failed", guard.name, exc_info=answer)
            elif inspect.iscoroutine(answer):
                answer.close()  # of a start that failed: no event loop has run yet


def _instantiated(step: CheckedStage) -> StageStep | RecordwiseStep:
    """Instantiates a stage; an error of a user's constructor gets a note with the stage's name."""
    try:
        return make(step)
    except Exception as error:
        error.add_note(f"raised when stage {step.stage.name} was made")
        raise
