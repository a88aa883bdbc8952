"""`StreamDriver`: what a stream answers Spark where the query is planned, from trigger to trigger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from kafka_actors.admin.requests import raise_first
from kafka_actors.errors import ConfigError, DataLossError, KafkaActorsError
from kafka_actors.types import TopicPartition

from .machines.behind import offsets_behind
from .machines.checkpoint import CheckpointProgress
from .machines.stream_offsets import (
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
from .machines.tasks import Task, tasks_of
from .offset_format import OffsetFormat
from .offset_json import GivenOffsets, at
from .options import StreamOptions
from .stream_brokers import StreamBrokers

logger = logging.getLogger(__name__)

_COMMIT_PAUSE_S = 10.0
"""Until the same offsets are tried again: an idle query is asked a hundred times a second."""


class StreamDriver:
    """Offsets go in and out in Spark's form, as `StreamOffsets.to_json` has it. For one thread.

    Every call may raise `NoBrokersAvailable`, a `KafkaError`, and with `failOnDataLoss` a `DataLossError`.
    """

    def __init__(
        self,
        options: StreamOptions,
        clock: Callable[[], float] = time.monotonic,
        brokers: StreamBrokers | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._brokers = brokers or StreamBrokers(options, clock)
        self._hold = MinOffsetsDelay(options.min_offsets, options.max_trigger_delay_ms / 1000)
        self._first: StreamOffsets | None = None
        self._known: StreamOffsets | None = None  # the newest end that Spark showed or was told
        self._target = None if options.ends is None else options.ends.by_partition
        self._available_at: float | None = None  # of when all is to be read, until that is known
        self._newest: dict[TopicPartition, int] | None = None
        self._format = OffsetFormat(options)
        self._first_kept = False
        self._checkpoint = CheckpointProgress()
        self._committed: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, int] = {}
        self._again_at = 0.0
        self._told: set[str] = set()
        self._group_checked = False
        for note in options.notes:
            logger.warning("%s", note)

    def close(self) -> None:
        """Closes the connections."""
        self._brokers.close()

    # ------------------------------------------------------------ offsets

    def initial(self) -> dict[str, Any]:
        """Where a new query starts: the same at each call."""
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
        self._tell(found.losses)
        first = StreamOffsets({r.tp: r.start for r in found.ranges}, ids, initial=True)
        ends = self._options.ends
        if ends is None:
            return first
        self._check_before(first, ends)
        return limited_to(first, ends, log_starts)

    def _check_before(self, first: StreamOffsets, ends: StreamOffsets) -> None:
        """Offsets behind the end were said by mistake; times are the same for all partitions."""
        start = self._options.start
        for tp in sorted(first.by_partition.keys() & ends.by_partition.keys()):
            end = ends.by_partition[tp]
            if isinstance(start, GivenOffsets) and start.by_partition[tp] > end:
                asked = start.by_partition[tp]
                raise ConfigError(start.option, f"has {asked} for {at(tp)}, which is to be read up to {end}")

    def latest(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """The end of the next batch: what Spark gave as `start` where there is nothing to read.

        Without `start` (before Spark 4.2) the newest end that is known is the start; if there is none, the query is
        new. `limited`: whether the options' limits hold, which some triggers pass over.
        """
        self._check_group()
        base = self._format.read(start) if start is not None else self._known or self._initial()
        seen = self._brokers.seen(base, since=self._available_at)
        if self._available_at is not None:
            self._target, self._available_at = seen.ends, None
        if self._options.ends is not None:
            raise_first(out_of_reach(base, seen, self._options.ends))
            seen = capped(seen, self._options.ends.by_partition)
        if start is not None:
            self._commit(self._checkpoint.at(base), seen)  # Spark plans a batch when the one before has ended
        self._newest, self._known = seen.ends, base
        end = self._end(base, seen, limited)
        if self._format.same(base, end) and not base.initial:
            end = base  # a topic made anew, whose log ends there, too: it is read when it goes on
        self._known = end
        return start if start is not None and end is base else self._format.write(end, base)

    def _end(self, base: StreamOffsets, seen: ObservedPartitions, limited: bool) -> StreamOffsets:
        self._tell(started_late(base, seen))
        if self._target is not None:
            seen = capped(seen, self._target)
        elif limited and self._hold.holds(pending(base, seen), self._clock()):
            return base
        limit = self._options.max_offsets if limited else None
        end = advance(base, seen, max_offsets=limit, selects=self._options.selection.selects)
        topics = {tp.topic for tp in seen.ends}
        gone = [tp for tp in base.by_partition if tp.topic not in topics]
        self._tell(losses(replace(base, initial=False), end, gone))  # nothing stands for the start but itself
        return end

    def prepare_available_now(self) -> None:
        """Everything that is there now is what the query reads (Trigger.AvailableNow), or up to the given ends. `latest`
        looks what that is: it comes next, and knows what was read, which a broker that is behind may not have. A client
        that asks again at once what topics there are waits for a tenth of a second, so what is asked from here on counts."""
        self._available_at = self._clock() if self._options.ends is None else None
        self._check_group()

    def reported(self) -> dict[str, Any] | None:
        """For the query's progress: the ends of the logs at the last trigger, and how far the planned end is behind
        them, by the names of the metrics of Spark's own source."""
        if self._newest is None or self._known is None:
            return None
        behind = offsets_behind(self._newest, self._known.by_partition)
        return self._format.progress(nested(self._newest), behind)

    # ------------------------------------------------------------ batches

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        """The ranges of each task of the batch between two offsets. Raises `ConfigError` for a first batch of Spark's own
        source whose start isn't known."""
        first, last = self._format.read(start), self._format.read(end)
        if first.initial and last.start is None and not self._first_kept:
            raise ConfigError(
                "checkpointLocation",
                "has a first batch that Spark's own source planned and didn't finish, and only that source knows where it "
                "starts: let it finish the batch, or say stateLocation, which is sources/0 in the checkpoint, or run "
                "kafka-actors spark-checkpoint convert --to kafka-actors",
            )
        self._known = last
        self._tell(losses(first, last))
        return tasks_of(
            ranges_between(first, last),
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )

    def checkpointed(self, end: dict[str, Any]) -> None:
        """Spark from 4.2 on says what is in its checkpoint. What the group may know of it is committed by `latest`."""
        self._checkpoint.told(self._format.read(end))

    def finished(self, end: dict[str, Any]) -> None:
        """Spark before 4.2 has finished all up to `end`, and says so a batch late; or a query has ended there."""
        if not self._options.commit_offsets:
            return
        done = self._format.read(end)
        try:
            seen = self._brokers.seen(done)
        except KafkaActorsError as error:
            logger.warning("group %s: offsets are not committed: %s", self._options.group_id, error)
        else:
            self._commit(done, seen)

    def _tell(self, found: Iterable[DataLossError]) -> None:
        for loss in found:
            if self._options.fail_on_data_loss:
                raise loss
            if str(loss) not in self._told:
                self._told.add(str(loss))
                logger.warning("%s; going on, because failOnDataLoss is false", loss)

    # ------------------------------------------------------------ the group

    def _check_group(self) -> None:
        if self._options.commit_offsets and not self._group_checked:
            self._brokers.check_group()
            self._group_checked = True

    def _commit(self, done: StreamOffsets, seen: ObservedPartitions) -> None:
        """Commits what is new, of topics that are the same still. Spark's checkpoint is what counts, so a failure is
        only told."""
        if not self._options.commit_offsets or done.initial:
            return
        here = seen.ends.keys() - newcomers(done, seen)
        new = {tp: o for tp, o in done.by_partition.items() if tp in here and self._committed.get(tp) != o}
        now = self._clock()
        if not new or (new == self._refused and now < self._again_at):
            return
        try:
            self._brokers.commit(new)
        except KafkaActorsError as error:
            self._refused, self._again_at = new, now + _COMMIT_PAUSE_S
            logger.warning("group %s: offsets are not committed: %s", self._options.group_id, error)
        else:
            self._committed.update(new)
