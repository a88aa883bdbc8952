"""Options `offsetFormat` and `stateLocation`: the format of a stream's offsets in Spark's checkpoint and progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafka_actors.errors import ConfigError
from kafka_actors.types import TopicPartition

from .machines.stream_offsets import StreamOffsets, nested, restored
from .options import StreamOptions

if TYPE_CHECKING:
    from .state_files import StateFiles


class OffsetFormat:
    """Converts offsets between this source's objects and Spark's JSON. Both formats are read, whichever is written.

    `kafka-actors` is `StreamOffsets.to_json`. `spark` is the format of Spark's own source, which has neither topic ids nor
    the first start: these are stored at `stateLocation` before Spark gets the offsets, so that Spark's offsets can be
    read wherever the process is killed. Raises `ConfigError` as `StateFiles`.
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
        """The start of the first batch, if this source or Spark's own has stored it.

        Raises `ConfigError` for one that another source of the query has stored.
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
        """Stores the start of the first batch, in the format `spark`."""
        if self._spark and self._state is not None:
            self._keep(first)  # the ids are stored before the start
            self._state.keep_first(first.by_partition)

    # ------------------------------------------------------------ offsets

    def read(self, offsets: Mapping[str, Any]) -> StreamOffsets:
        """Reads offsets of Spark's. Raises `ConfigError` for ones that are not of a stream of this source."""
        found = StreamOffsets.from_json(offsets)
        return found if found.has_more_than_spark else self._restored(found)

    def _restored(self, found: StreamOffsets) -> StreamOffsets:
        return found if self._state is None else restored(found, self._state.kept())

    def write(self, offsets: StreamOffsets, base: StreamOffsets) -> dict[str, Any]:
        """Writes the end of a batch that begins at `base`, for Spark. In the format `spark` both are stored first."""
        if self._spark:
            self._keep(base)
            self._keep(offsets)
        return self.shown(offsets)

    def shown(self, offsets: StreamOffsets) -> dict[str, Any]:
        """The JSON for Spark of offsets that are stored, or need not be."""
        return nested(offsets.by_partition) if self._spark else offsets.to_json()

    def _keep(self, offsets: StreamOffsets) -> None:
        assert self._state is not None  # the options are checked together
        if offsets not in islice(self._state.kept(), 2):  # the begin and the end of a batch
            self._state.keep(offsets)

    def same(self, one: StreamOffsets, other: StreamOffsets) -> bool:
        """Whether Spark gets the same text for both, so that it finds nothing new."""
        return self._spark and one.by_partition == other.by_partition

    def progress(self, ends: dict[str, Any], metrics: dict[str, str]) -> dict[str, Any]:
        """The ends of the logs for a query's progress, with metrics, for which the format `spark` has no place."""
        return ends if self._spark or not metrics else {**ends, "@metrics": metrics}
