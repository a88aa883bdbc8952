"""Error handling of stages: retries, bisection of a batch until the failing records are known, or a `StageError`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa

from kafka_actors.base.backoff import CALL_BACKOFF_MAX_S, CALL_BACKOFF_S, exponential_backoff
from kafka_actors.base.bisect import Bisection
from kafka_actors.errors import StageError

from .casts import CastError, one_line
from .failures import FailedRecord
from .rows import StageRows
from .stage_steps import DecodeStep, RawTextStep, StageStep
from .stages import OnError

logger = logging.getLogger(__name__)

FAILURES = (Exception, SystemExit)
"""Errors that count as ones of the user's code."""


class StageGuard:
    """One stage with its `on_error` policy. Under "skip" and "dead_letter" it adds records that fail to the list `failures`."""

    def __init__(
        self,
        name: str,
        policy: OnError,
        retries: int,
        made: StageStep | DecodeStep | RawTextStep,
        sleep: Callable[[float], object],
    ) -> None:
        self.name = name
        self.made = made
        self._policy = policy
        self._retries = retries
        self._sleep = sleep

    def run(self, rows: StageRows, source: pa.RecordBatch, failures: list[FailedRecord]) -> list[StageRows]:
        """Runs the stage on rows. Raises `StageError` under "fail"."""
        if isinstance(self.made, (DecodeStep, RawTextStep)):
            return [self._decoded(self.made, rows, source, failures)]
        return self._guarded(self.made, rows, source, failures)

    def _decoded(
        self,
        made: DecodeStep | RawTextStep,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
    ) -> StageRows:
        decoded, failed = made.run(rows)
        if failed and self._policy == "fail":
            record, reason = failed[0]
            raise stage_error(self.name, source, record, record, 1, reason)
        failures += (FailedRecord(record, self.name, reason) for record, reason in failed)
        return decoded

    def _guarded(
        self, made: StageStep, rows: StageRows, source: pa.RecordBatch, failures: list[FailedRecord]
    ) -> list[StageRows]:
        attempt = 1
        while True:
            try:
                return made.run(rows, source)
            except FAILURES as error:
                permanent = not made.retriable or isinstance(error, CastError)
                if attempt <= self._retries and not permanent:
                    self._log_retry(error, attempt)
                    self._sleep(exponential_backoff(attempt, CALL_BACKOFF_S, CALL_BACKOFF_MAX_S))
                    attempt += 1
                    continue
                if self._policy == "fail":
                    records = rows.records(source.num_rows)
                    raise stage_error(
                        self.name, source, int(records[0]), int(records[-1]), attempt, _text_of(error)
                    ) from error
                return self._bisected(made, rows, source, failures, error)

    def _bisected(
        self,
        made: StageStep,
        rows: StageRows,
        source: pa.RecordBatch,
        failures: list[FailedRecord],
        error: BaseException,
    ) -> list[StageRows]:
        """Runs halves of the rows until single rows fail; in order, so that the output is in order."""
        found: list[StageRows] = []
        bisection = Bisection(rows.batch.num_rows)
        if bisection.part is None:
            failures += self._failed(rows, source, error)
        while (part := bisection.part) is not None:
            half = rows.slice(*part)
            try:
                found += made.run(half, source)
                bisection.succeeded()
            except FAILURES as again:
                if bisection.failed():
                    failures += self._failed(half, source, again)
        return found

    def _failed(
        self, rows: StageRows, source: pa.RecordBatch, error: BaseException
    ) -> Iterator[FailedRecord]:
        return (FailedRecord(int(r), self.name, _text_of(error)) for r in rows.records(source.num_rows))

    def _log_retry(self, error: BaseException, attempt: int) -> None:
        logger.warning(
            "stage %s failed (%s); retry %d of %d", self.name, _text_of(error), attempt, self._retries
        )


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(error)}"


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
