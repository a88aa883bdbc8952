"""`offsetFormat` and `stateLocation`: in which form Spark's checkpoint and progress have a stream's offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafka_actors.errors import ConfigError
from kafka_actors.types import TopicPartition

from .machines.kept_offsets import restored
from .machines.stream_offsets import StreamOffsets, nested
from .options import StreamOptions

if TYPE_CHECKING:
    from .state_files import StateFiles


class OffsetFormat:
    """Offsets as Spark has them, and as this source has them; both forms are read, whichever is written.

    `kafka-actors`: `StreamOffsets.to_json`. `spark`: what Spark's own source reads and writes, which has neither topic ids
    nor the first start: these are kept at `stateLocation`, before Spark has the offsets that they belong to. So what Spark
    has can be understood, wherever the process is killed. Raises `ConfigError` as `StateFiles`.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._spark = options.offset_format == "spark"
        self._location = options.state_location

    @cached_property
    def _state(self) -> StateFiles | None:
        if self._location is None:
            return None
        from .state_files import StateFiles

        return StateFiles(self._location)

    # ------------------------------------------------------------ where the query starts

    def first(self, selects: Callable[[TopicPartition], bool]) -> StreamOffsets | None:
        """Where the first batch starts, if this source or Spark's own has kept it.

        Raises `ConfigError` where another source of the query has.
        """
        found = None if self._state is None else self._state.first()
        if found is None:
            return None
        for tp in sorted(found):
            if not selects(tp):
                raise ConfigError(
                    "stateLocation",
                    f"is {self._location!r}: it has the first offsets of {tp.topic}-{tp.partition}, which this source "
                    "doesn't read; each source of a query has a directory of its own",
                )
        first = self._restored(StreamOffsets(found))
        return StreamOffsets(found, first.topic_ids, initial=True)

    def keep_first(self, first: StreamOffsets) -> None:
        """The first batch starts there, whenever it is asked again."""
        if self._spark and self._state is not None:
            self._keep(first)  # the ids are there before the start is
            self._state.keep_first(first.by_partition)

    # ------------------------------------------------------------ offsets

    def read(self, given: Mapping[str, Any]) -> StreamOffsets:
        """What Spark gave. Raises `ConfigError` for what is no stream's offsets."""
        found = StreamOffsets.from_json(given)
        return found if found.has_more_than_spark else self._restored(found)

    def _restored(self, found: StreamOffsets) -> StreamOffsets:
        return found if self._state is None else restored(found, self._state.kept())

    def write(self, offsets: StreamOffsets, base: StreamOffsets) -> dict[str, Any]:
        """For Spark: the end of a batch that begins at `base`. Both are kept before Spark has it."""
        if self._spark:
            self._keep(base)
            self._keep(offsets)
        return self.shown(offsets)

    def shown(self, offsets: StreamOffsets) -> dict[str, Any]:
        """As Spark sees offsets that are kept, or need not be."""
        return nested(offsets.by_partition) if self._spark else offsets.to_json()

    def _keep(self, offsets: StreamOffsets) -> None:
        assert self._state is not None  # the options are checked together
        if offsets not in islice(self._state.kept(), 2):  # what a batch begins and ends with
            self._state.keep(offsets)

    def same(self, one: StreamOffsets, other: StreamOffsets) -> bool:
        """Whether they are one text for Spark, for which there is then nothing new."""
        return self._spark and one.by_partition == other.by_partition

    def progress(self, ends: dict[str, Any], metrics: dict[str, str]) -> dict[str, Any]:
        """The ends of the logs for a query's progress; Spark's form has no place for metrics."""
        return ends if self._spark or not metrics else {**ends, "@metrics": metrics}
