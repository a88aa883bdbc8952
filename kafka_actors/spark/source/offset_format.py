"""Options `offsetFormat` and `stateLocation`: the format of a stream's offsets in Spark's checkpoint and progress, and the files
beside it that have what Spark's own format has no place for.

Files of a `stateLocation`, the start of a query in the file of Spark's own source, and its offsets with topic ids:

0                          start of the first batch: Spark's own source reads and writes the same file
kafka_actors/0, 1, 2, …    offsets in the format with topic ids: `StreamOffsets.to_json`
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from kafka_actors.base.paths import sync
from kafka_actors.errors import ConfigError
from kafka_actors.types import TopicPartition

from .machines.stream_offsets import StreamOffsets, nested, restored

if TYPE_CHECKING:
    from .options import StreamOptions

_OPTION = "stateLocation"
_FIRST = "0"
_OURS = "kafka_actors"
_FORMAT = 1
_KEPT = 100
"""Number of files that are kept, as in Spark's own log (`spark.sql.streaming.minBatchesToRetain`)."""
_SPARKS_VERSION = "v1"


class TextFiles:
    """Small files in a directory or at a URI that pyarrow knows; each appears complete or not at all.

    Raises `ConfigError`, of `option`, where the file system refuses.
    """

    def __init__(self, location: str, option: str) -> None:
        from kafka_actors.sinks.parquet import file_system  # here, because it imports pyarrow's Parquet

        self._option = option
        self.directory = location
        with self._errors():
            self._files, self.directory = file_system(location)

    def read(self, name: str) -> str | None:
        """The text of a file, None if there is no such file."""
        with self._errors(name):
            try:
                with self._files.open_input_stream(f"{self.directory}/{name}") as stream:
                    return bytes(stream.read()).decode()
            except FileNotFoundError:
                return None

    def write(self, name: str, text: str) -> None:
        """Makes or replaces a file. On a local file system it is on the disk when this returns."""
        directory, _, base = f"{self.directory}/{name}".rpartition("/")
        unfinished = f"{directory}/.{base}.{uuid.uuid4().hex}"
        with self._errors(name):
            self._files.create_dir(directory, recursive=True)
            with self._files.open_output_stream(unfinished) as stream:
                stream.write(text.encode())
            if isinstance(self._files, fs.LocalFileSystem):
                sync(unfinished)
            # The checksum that Hadoop has made for the old content.
            self.delete(f"{name.rpartition('/')[0]}/.{base}.crc".lstrip("/"))
            self._files.move(unfinished, f"{directory}/{base}")

    def delete(self, name: str) -> None:
        """Deletes a file, if there is one."""
        with self._errors(name), suppress(FileNotFoundError):
            self._files.delete_file(f"{self.directory}/{name}")

    def numbers(self, name: str = "") -> list[int]:
        """The numbers, in order, that are names of files in a directory."""
        selector = fs.FileSelector(f"{self.directory}/{name}".rstrip("/"), allow_not_found=True)
        with self._errors(name):
            found = self._files.get_file_info(selector)
        return sorted(int(info.base_name) for info in found if info.is_file and info.base_name.isdecimal())

    @contextmanager
    def _errors(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, NotImplementedError) as error:
            where = f"{self.directory}/{name}" if name else self.directory
            raise ConfigError(self._option, f"{where}: {type(error).__name__}: {error}") from None


class StateFiles:
    """Reads and writes the files of a `stateLocation`; see the module. For one process at a time, as a query's checkpoint
    is. Raises `ConfigError` as `TextFiles`, and for files in another format."""

    def __init__(self, location: str, option: str = _OPTION) -> None:
        self._files = TextFiles(location, option)
        self._option = option
        self._numbers: list[int] | None = None
        self._read: dict[int, StreamOffsets] = {}

    # ------------------------------------------------------------ where the query starts

    def first(self) -> dict[TopicPartition, int] | None:
        """The start of the first batch, None if it was never stored."""
        text = self._files.read(_FIRST)
        if text is None:
            return None
        version, newline, offsets = text.lstrip("\0").partition("\n")
        if not newline:  # the format of Spark 2.1
            version, offsets = _SPARKS_VERSION, version
        if version != _SPARKS_VERSION:
            raise ConfigError(self._option, f"{self._files.directory}/{_FIRST} has version {version}")
        return StreamOffsets.from_json(self._decoded(_FIRST, offsets)).by_partition

    def keep_first(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores the start of the first batch, in the format of Spark's own source."""
        self._files.write(_FIRST, f"\0{_SPARKS_VERSION}\n{compact(nested(offsets))}")

    # ------------------------------------------------------------ offsets with topic ids

    def kept(self) -> Iterator[StreamOffsets]:
        """Stored offsets, newest first."""
        for number in reversed(self._known):
            if number not in self._read:
                name = f"{_OURS}/{number}"
                text = self._files.read(name)
                document = None if text is None else self._decoded(name, text)
                if not isinstance(document, dict) or document.get("format") != _FORMAT:
                    raise ConfigError(
                        self._option,
                        f"{self._files.directory}/{name} is not of format {_FORMAT}, which this version reads",
                    )
                self._read[number] = StreamOffsets.from_json(document["offsets"])
            yield self._read[number]

    def keep(self, offsets: StreamOffsets) -> None:
        """Stores offsets, before Spark has them, and deletes the oldest beyond a hundred."""
        number = self._known[-1] + 1 if self._known else 0
        text = compact({"format": _FORMAT, "offsets": offsets.to_json()})
        self._files.write(f"{_OURS}/{number}", text + "\n")
        self._known.append(number)
        self._read[number] = offsets
        while len(self._known) > _KEPT:
            old = self._known.pop(0)
            self._read.pop(old, None)
            self._files.delete(f"{_OURS}/{old}")

    @property
    def _known(self) -> list[int]:
        if self._numbers is None:
            self._numbers = self._files.numbers(_OURS)
        return self._numbers

    def _decoded(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(self._option, f"{self._files.directory}/{name} is not JSON: {error}") from None


def compact(document: Any) -> str:
    """JSON without blanks, as Spark writes it."""
    return json.dumps(document, separators=(",", ":"))


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
