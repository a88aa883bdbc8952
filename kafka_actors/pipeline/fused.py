"""Fused stages: the Arrow stages that run in one process, one after the other on each batch that is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa

from .check import CheckedStage
from .failures import FailedRecord, once
from .rows import StageRows, rows_of
from .stage_guard import StageGuard
from .stage_steps import DecodeStep, RawTextStep, StageStep, make

logger = logging.getLogger(__name__)


class StageOutput(NamedTuple):
    """Result of a batch: rows, in order, and the records that failed, each once."""

    rows: list[StageRows]
    failures: list[FailedRecord]


class FusedSteps:
    """Stages instantiated in this process, users' classes included. When a constructor raises, the stages before it are
    closed and the error is raised.

    `retries`: how often a user's function is called again; `sleep` waits in between.
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
                self._guards.append(
                    StageGuard(step.stage.name, step.on_error, retries, _instantiated(step), sleep)
                )
        except BaseException:
            self.close()
            raise

    def run(self, source: pa.RecordBatch, begun: StageRows | None = None) -> StageOutput:
        """Processes a batch of one partition, with the columns of `SCHEMA`; `begun` are the rows that earlier stages made of
        it in another process. Raises `StageError`."""
        rows = [rows_of(source) if begun is None else begun]
        failures: list[FailedRecord] = []
        for guard in self._guards:
            rows = [
                made for part in rows for made in guard.run(part, source, failures) if made.batch.num_rows
            ]
        return StageOutput(rows, once(failures))

    def close(self) -> None:
        """Closes users' objects: all of them, even if one raises, which is logged."""
        for guard in self._guards:
            if isinstance(guard.made, (DecodeStep, RawTextStep)):
                continue
            try:
                guard.made.close()
            except Exception:
                logger.exception("stage %s: close failed", guard.name)


def _instantiated(step: CheckedStage) -> StageStep | DecodeStep | RawTextStep:
    """Instantiates a stage; an error of a user's constructor gets a note with the stage's name."""
    try:
        return make(step)
    except Exception as error:
        error.add_note(f"raised when stage {step.stage.name} was made")
        raise
