"""The stream reader for Spark from 4.2 on: batches have limits, and Trigger.AvailableNow ends."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .one_line_errors import OneLineErrors
from .stream_reader import KafkaStreamReader


class LimitedKafkaStreamReader(SupportsTriggerAvailableNow, KafkaStreamReader):
    """`KafkaStreamReader` with the calls that Spark makes since 4.2."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options ask for. A Python source can't combine limits: `latestOffset` knows of both."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # as 4.2 calls it
        """The end of the next batch, within the options' limits unless Spark wants all. Raises as
        `StreamDriver.latest`."""
        with OneLineErrors():
            return self._driver.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is what the query reads."""
        with OneLineErrors():
            self._driver.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the logs, for the query's progress."""
        return self._driver.reported()

    def commit(self, end: dict[str, Any]) -> None:
        """Says how far the checkpoint is. It comes a batch late, so it is `latestOffset` that commits for the group."""
        with OneLineErrors():
            self._driver.checkpointed(end)
