"""All Arrow stages of a pipeline in one process, one after the other on each batch that is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa

from .check import CheckedStage
from .rows import FailedRecord, StageRows, rows_of
from .stage_guard import StageGuard
from .stage_steps import DecodeStep, RawTextStep, StageStep, make

logger = logging.getLogger(__name__)


class StageOutput(NamedTuple):
    """What became of a batch: rows, in order, and the records that a stage could not take, each once."""

    rows: list[StageRows]
    failures: list[FailedRecord]


class FusedSteps:
    """The stages made ready: classes are made here. What a constructor raises comes through, with those before closed.

    `retries` of the user's functions; `sleep` waits between them.
    """

    def __init__(
        self,
        steps: Iterable[CheckedStage],
        *,
        retries: int = 0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._guards: list[StageGuard] = []
        try:
            for step in steps:
                self._guards.append(StageGuard(step.stage.name, step.on_error, retries, _made(step), sleep))
        except BaseException:
            self.close()
            raise

    def run(self, source: pa.RecordBatch, begun: StageRows | None = None) -> StageOutput:
        """Works on a batch of one partition, with the columns of `SCHEMA`; where earlier stages ran elsewhere, on the
        rows that they made of it. Raises `StageError`."""
        rows = [rows_of(source) if begun is None else begun]
        failures: list[FailedRecord] = []
        for guard in self._guards:
            rows = [
                made for part in rows for made in guard.run(part, source, failures) if made.batch.num_rows
            ]
        return StageOutput(rows, once(failures))

    def close(self) -> None:
        """Closes the users' objects, each of them whatever another one raises."""
        for guard in self._guards:
            if isinstance(guard.made, (DecodeStep, RawTextStep)):
                continue
            try:
                guard.made.close()
            except Exception:
                logger.exception("stage %s: close failed", guard.name)


def _made(step: CheckedStage) -> StageStep | DecodeStep | RawTextStep:
    """The stage made ready. An error of a constructor has a note that names it."""
    try:
        return make(step)
    except Exception as error:
        error.add_note(f"raised when stage {step.stage.name} was made")
        raise


def once(failures: list[FailedRecord]) -> list[FailedRecord]:
    """The first failure of each record, in the order of the records: of one record several rows may fail."""
    first: dict[int, FailedRecord] = {}
    for failure in failures:
        first.setdefault(failure.record, failure)
    return [first[record] for record in sorted(first)]
