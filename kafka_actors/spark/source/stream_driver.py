"""`StreamDriver`: answers Spark's questions about a stream's offsets where the query is planned, from trigger to trigger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kafka_actors.admin.requests import raise_first
from kafka_actors.errors import ConfigError, DataLossError, KafkaActorsError
from kafka_actors.types import TopicPartition

from .machines.offset_ranges import SpecificOffsets, Task, at, tasks_of
from .machines.stream_offsets import (
    CheckpointProgress,
    MinOffsetsDelay,
    ObservedPartitions,
    StreamOffsets,
    advance,
    capped,
    limited_to,
    losses,
    nested,
    newcomers,
    out_of_reach,
    pending,
    ranges_between,
    started_late,
)
from .offset_format import OffsetFormat
from .options import StreamOptions
from .stream_brokers import StreamBrokers

if TYPE_CHECKING:
    from .query_schema import QuerySchema, ReadBy

logger = logging.getLogger(__name__)

_COMMIT_PAUSE_S = 10.0
"""Seconds until a refused commit is tried again: Spark calls an idle query a hundred times a second."""


class StreamDriver:
    """Plans the micro-batches of a stream. Offsets go in and out in the form of `OffsetFormat`. For one thread.

    Every method may raise `NoBrokersAvailable`, a `KafkaError`, and with `failOnDataLoss` a `DataLossError`.
    """

    def __init__(
        self,
        options: StreamOptions,
        clock: Callable[[], float] = time.monotonic,
        brokers: StreamBrokers | None = None,
        schema: QuerySchema | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._brokers = brokers or StreamBrokers(options, clock)
        self._schema = schema
        self._delay = MinOffsetsDelay(options.min_offsets, options.max_trigger_delay_ms / 1000)
        self._first: StreamOffsets | None = None
        self._known: StreamOffsets | None = None  # the newest end that Spark passed or got
        self._target = None if options.ends is None else options.ends.by_partition
        self._available_at: float | None = (
            None  # Trigger.AvailableNow: when it was prepared, until its target is known
        )
        self._newest: dict[TopicPartition, int] | None = None
        self._format = OffsetFormat(options)
        self._first_kept = False
        self._checkpoint = CheckpointProgress()
        self._committed: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, int] = {}
        self._retry_at = 0.0
        self._logged: set[str] = set()
        self._group_checked = False
        for note in options.notes:
            logger.warning("%s", note)

    def close(self) -> None:
        """Closes the connections."""
        self._brokers.close()

    # ------------------------------------------------------------ offsets

    def initial(self) -> dict[str, Any]:
        """The start of a new query: the same at each call."""
        return self._format.shown(self._initial())

    def _initial(self) -> StreamOffsets:
        if self._first is None:
            self._check_group()
            kept = self._format.first(self._options.selection.selects)
            self._first_kept = kept is not None
            self._first = kept or self._options.begin or self._start()
            if kept is None:
                self._format.keep_first(self._first)
        return self._first

    def _start(self) -> StreamOffsets:
        found, ids, log_starts = self._brokers.start()
        self._report(found.losses)
        first = StreamOffsets({r.tp: r.start for r in found.ranges}, ids, initial=True)
        ends = self._options.ends
        if ends is None:
            return first
        self._check_before(first, ends)
        return limited_to(first, ends, log_starts)

    def _check_before(self, first: StreamOffsets, ends: StreamOffsets) -> None:
        """Raises `ConfigError` for start offsets behind the end. A timestamp, which is for all partitions, may be."""
        start = self._options.start
        for tp in sorted(first.by_partition.keys() & ends.by_partition.keys()):
            end = ends.by_partition[tp]
            if isinstance(start, SpecificOffsets) and start.by_partition[tp] > end:
                requested = start.by_partition[tp]
                raise ConfigError(
                    start.option, f"has {requested} for {at(tp)}, which is to be read up to {end}"
                )

    def latest(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """The end of the next batch; it is `start` where there is nothing to read.

        Without `start` (before Spark 4.2) the batch starts at the newest known end, or at the start of a new query.
        `limited`: whether the options' limits apply, which some triggers ignore.
        """
        self._check_group()
        base = self._format.read(start) if start is not None else self._known or self._initial()
        observed = self._brokers.observed(base, since=self._available_at)
        if self._available_at is not None:
            self._target, self._available_at = observed.ends, None
        if self._options.ends is not None:
            raise_first(out_of_reach(base, observed, self._options.ends))
            observed = capped(observed, self._options.ends.by_partition)
        if start is not None:
            # Spark plans a batch when the last one has ended.
            self._commit(self._checkpoint.safe_at(base), observed)
        self._newest, self._known = observed.ends, base
        end = self._end(base, observed, limited)
        if self._format.same(base, end) and not base.initial:
            end = base  # a topic that was created again, with the same end: it is read when it grows
        if end is not base:
            end = replace(end, schema=None if self._schema is None else self._schema.of(base))
        self._known = end
        return start if start is not None and end is base else self._format.write(end, base)

    def _end(self, base: StreamOffsets, observed: ObservedPartitions, limited: bool) -> StreamOffsets:
        self._report(started_late(base, observed))
        if self._target is not None:
            observed = capped(observed, self._target)
        elif limited and self._delay.holds(pending(base, observed), self._clock()):
            return base
        limit = self._options.max_offsets if limited else None
        end = advance(base, observed, max_offsets=limit, selects=self._options.selection.selects)
        topics = {tp.topic for tp in observed.ends}
        gone = [tp for tp in base.by_partition if tp.topic not in topics]
        # The start itself counts here, not the one in `end`.
        self._report(losses(replace(base, initial=False), end, gone))
        return end

    def prepare_available_now(self) -> None:
        """Fixes the target of the query (Trigger.AvailableNow): all records that exist now, or the ends of the options.

        `latest`, which Spark calls next, looks the target up: it knows the stream's position, which a lagging broker may not
        have reached. It accepts metadata that are requested from now on, because a client that requests them twice in a
        row waits for a tenth of a second."""
        self._available_at = self._clock() if self._options.ends is None else None
        self._check_group()

    def reported(self) -> dict[str, Any] | None:
        """The ends of the logs at the last trigger, and the lag of the planned end under the names of Spark's own metrics, for the
        query's progress."""
        if self._newest is None or self._known is None:
            return None
        behind = offsets_behind(self._newest, self._known.by_partition)
        return self._format.progress(nested(self._newest), behind)

    # ------------------------------------------------------------ batches

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        """The ranges of each task of the batch between two offsets. Raises `ConfigError` for a first batch that Spark's own source
        planned and whose start is unknown."""
        first, last = self._format.read(start), self._format.read(end)
        if first.initial and last.start is None and not self._first_kept:
            raise ConfigError(
                "checkpointLocation",
                "has a first batch that Spark's own source planned and didn't finish, and only that source knows where it "
                "starts: let it finish the batch, or say stateLocation, which is sources/0 in the checkpoint, or run "
                "kafka-actors spark-checkpoint convert --to kafka-actors",
            )
        self._known = last
        self._report(losses(first, last))
        return tasks_of(
            ranges_between(first, last),
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )

    def read_by(self, start: dict[str, Any], end: dict[str, Any]) -> ReadBy | None:
        """The schema of the values between two offsets, None for the one that the query was planned with. Raises as `QuerySchema.read_by`."""
        return (
            None
            if self._schema is None
            else self._schema.read_by(self._format.read(start), self._format.read(end))
        )

    def checkpointed(self, end: dict[str, Any]) -> None:
        """Takes the offsets of a `commit` of Spark from 4.2 on. The group's offsets are committed later, by `latest`."""
        self._checkpoint.committed(self._format.read(end))

    def finished(self, end: dict[str, Any]) -> None:
        """Commits `end` for the group: Spark before 4.2 has finished that batch, as it says a batch late, or the query has ended."""
        if not self._options.commit_offsets:
            return
        done = self._format.read(end)
        try:
            observed = self._brokers.observed(done)
        except KafkaActorsError as error:
            logger.warning("group %s: offsets are not committed: %s", self._options.group_id, error)
        else:
            self._commit(done, observed)

    def _report(self, found: Iterable[DataLossError]) -> None:
        for loss in found:
            if self._options.fail_on_data_loss:
                raise loss
            if str(loss) not in self._logged:
                self._logged.add(str(loss))
                logger.warning("%s; going on, because failOnDataLoss is false", loss)

    # ------------------------------------------------------------ the group

    def _check_group(self) -> None:
        if self._options.commit_offsets and not self._group_checked:
            self._brokers.check_group()
            self._group_checked = True

    def _commit(self, done: StreamOffsets, observed: ObservedPartitions) -> None:
        """Commits new offsets of topics that still have the same ids. A failure is only logged, because the query goes on from
        Spark's checkpoint."""
        if not self._options.commit_offsets or done.initial:
            return
        here = observed.ends.keys() - newcomers(done, observed)
        new = {tp: o for tp, o in done.by_partition.items() if tp in here and self._committed.get(tp) != o}
        now = self._clock()
        if not new or (new == self._refused and now < self._retry_at):
            return
        try:
            self._brokers.commit(new, observed.topic_ids)
        except KafkaActorsError as error:
            self._refused, self._retry_at = new, now + _COMMIT_PAUSE_S
            logger.warning("group %s: offsets are not committed: %s", self._options.group_id, error)
        else:
            self._committed.update(new)


def offsets_behind(
    newest: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """The smallest, largest and average lag of partitions, in offsets, under the names of Spark's own metrics; empty without
    partitions."""
    behind = [max(end - reached.get(tp, 0), 0) for tp, end in newest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
