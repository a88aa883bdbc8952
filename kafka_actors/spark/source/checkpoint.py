"""Checkpoint of a Spark query: its location, and the offsets in it, which `convert` changes from the format of this source
to that of Spark's own, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.pipeline.definition import Definition
from kafka_actors.pipeline.schema_stages import Decode

from .machines.stream_offsets import KeptSchema, StreamOffsets, nested, restored
from .offset_format import StateFiles, TextFiles, compact

P = TypeVar("P", bound=Definition)

_HADOOPS = {"s3a": "s3", "s3n": "s3"}


class CheckpointPath(NamedTuple):
    """Location of a checkpoint: objects of Spark's JVM, and the whole URI."""

    path: Any
    system: Any
    configuration: Any
    uri: str

    @property
    def location(self) -> str:
        """The location for pyarrow: a path of this machine, or a URI."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return unquote(parts.path)
        return parts._replace(scheme=_HADOOPS.get(parts.scheme, parts.scheme)).geturl()

    def newest_offsets(self, jvm: Any) -> str | None:
        """The text of the newest file of the offset log, read by Spark's own file system; None before the first batch. Raises `ConfigError`."""
        paths = jvm.org.apache.hadoop.fs.Path
        try:
            log = paths(self.path, "offsets")
            if not self.system.exists(log):
                return None
            names = [str(status.getPath().getName()) for status in self.system.listStatus(log)]
            numbers = [int(name) for name in names if name.isdecimal()]
            if not numbers:
                return None
            stream = self.system.open(paths(log, str(max(numbers))))
            try:
                return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Exception as error:  # Py4JJavaError of any kind, from the file system's code
            raise ConfigError(
                "checkpoint", f"is {self.uri!r}: Spark can't read it: {reason_of(error)}"
            ) from None


def checkpoint_of(spark: Any, checkpoint: str) -> CheckpointPath | None:
    """The location of a checkpoint; a name without a scheme is on Spark's default file system. None over Spark Connect, from
    where that is unknown.

    Raises `ConfigError` for one that can't be reached from here.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    try:
        path = jvm.org.apache.hadoop.fs.Path(checkpoint)
        configuration = spark._jsc.hadoopConfiguration()
        system = path.getFileSystem(configuration)
        return CheckpointPath(path, system, configuration, system.makeQualified(path).toUri().toString())
    except Exception as error:  # Py4JJavaError of any kind, from the file system's code
        raise ConfigError(
            "checkpoint", f"is {checkpoint!r}: Spark can't reach it: {reason_of(error)}"
        ) from None


def reason_of(error: BaseException) -> str:
    """The first line of an error of Java's."""
    raised = getattr(error, "java_exception", None)
    return str(raised.toString() if raised is not None else error).partition("\n")[0]


def as_before(pipeline: P, spark: Any, checkpoint: str | None) -> P:
    """The pipeline with the schema by which the query of a checkpoint has decoded values since its first start; as it is for a new query, for a
    schema that it names, and over Spark Connect, from where the checkpoint is unknown. Raises `ConfigError`, and `SchemaRegistryError` where
    the registry can't be asked for that schema."""
    source = pipeline.source
    stage = next((one for one in pipeline.stages if isinstance(one, Decode) and one.is_open), None)
    if checkpoint is None or source is None or stage is None:
        return pipeline
    kept = kept_schema(spark, checkpoint, source.selects)
    if kept is None or (stage.chosen_schema is not None and stage.chosen_schema.id == kept.id):
        return pipeline
    again = stage.again(kept.id, kept.subject, kept.version, source.topics)
    return replace(pipeline, stages=tuple(again if one is stage else one for one in pipeline.stages))


def kept_schema(spark: Any, checkpoint: str, selects: Callable[[str], bool]) -> KeptSchema | None:
    """The schema by which the query of a checkpoint has read the topics that are selected; None for a new one, for one without a schema, and
    over Spark Connect. Raises `ConfigError`."""
    found = checkpoint_of(spark, checkpoint)
    text = None if found is None else found.newest_offsets(spark._jvm)
    if found is None or text is None:
        return None
    for each in (line.kafka for line in log_lines(text, f"{found.uri}/offsets")):
        if each is not None and any(selects(tp.topic) for tp in each.offsets.by_partition):
            known = QueryCheckpoint(found.location).restored(each) if each.form == "spark" else each.offsets
            return known.schema
    return None


Form = Literal["spark", "kafka-actors"]
_OPTION = "PATH"


class KafkaOffsets(Struct, frozen=True):
    """Offsets of one Kafka source at the end of a batch. `source` is its number, or its name if it has one."""

    source: str
    form: Form
    offsets: StreamOffsets


class OffsetLogLine(Struct):
    """Line of Spark's offset log, behind its first two; `kafka` is None for other sources and for no offsets."""

    prefix: str
    text: str
    kafka: KafkaOffsets | None = None


class OffsetLogBatch(Struct):
    """File of Spark's offset log (in format v1 a line for each source, in v2 with the source's name before it)."""

    number: int
    finished: bool
    head: list[str]
    lines: list[OffsetLogLine]

    @property
    def kafka(self) -> list[KafkaOffsets]:
        return [line.kafka for line in self.lines if line.kafka is not None]

    def to_text(self) -> str:
        return "\n".join([*self.head, *(line.prefix + line.text for line in self.lines)])


class QueryCheckpoint:
    """Checkpoint of a query: a directory, or a URI that pyarrow knows.

    `state_location` is the `stateLocation` of its Kafka source, if that isn't `sources/<number>` in the checkpoint. Raises
    `ConfigError` where files can't be read.
    """

    def __init__(self, path: str, state_location: str | None = None) -> None:
        self._path = path.rstrip("/")
        self._files = TextFiles(self._path, _OPTION)
        self._state_location = state_location
        self._states: dict[str, StateFiles] = {}

    def batches(self) -> list[OffsetLogBatch]:
        """The batches in the checkpoint, oldest first. Raises `UsageError` where there is none."""
        finished = self._files.numbers("commits")
        numbers = self._files.numbers("offsets")
        if not numbers:
            raise UsageError(
                f"{self._path} is not the checkpoint of a query that has planned a batch: it has no offsets"
            )
        return [self._batch(number, number in finished) for number in numbers]

    def _batch(self, number: int, finished: bool) -> OffsetLogBatch:
        name = f"offsets/{number}"
        text = self._files.read(name) or ""
        lines = log_lines(text, f"{self._path}/{name}")
        return OffsetLogBatch(number, finished, (text.split("\n") + [""] * 2)[:2], lines)

    def state(self, source: str) -> StateFiles:
        """The state files of a source, beside the checkpoint."""
        if source not in self._states:
            location = self._state_location or f"{self._path}/sources/{source}"
            self._states[source] = StateFiles(location, _OPTION)
        return self._states[source]

    def restored(self, source_offsets: KafkaOffsets) -> StreamOffsets:
        """Offsets with topic ids, where these are known."""
        if source_offsets.form == "kafka-actors":
            return source_offsets.offsets
        return restored(source_offsets.offsets, self.state(source_offsets.source).kept())

    # ------------------------------------------------------------ from form to form

    def convert(self, to: Form) -> list[int]:
        """Converts the offsets of all batches to this format, and returns the numbers of the batches that changed. It may be
        killed at any moment and run again: whatever the new format has no place for is stored first.

        Raises `UsageError` where two sources would share a `state_location`.
        """
        batches = self.batches()
        sources = {each.source for batch in batches for each in batch.kafka}
        if self._state_location is not None and len(sources) > 1:
            raise UsageError("--state-location is for a query with one Kafka source: this one has more")
        changed = []
        for batch in batches:
            before = batch.to_text()
            for line in batch.lines:
                if line.kafka is not None and line.kafka.form != to:
                    line.text = (
                        self._to_spark(line.kafka)
                        if to == "spark"
                        else self._to_ours(line.kafka, batch.number)
                    )
            if batch.to_text() != before:
                # Spark's own checksum, where these are enabled.
                self._files.delete(f"offsets/{batch.number}.crc")
                self._files.write(f"offsets/{batch.number}", batch.to_text())
                changed.append(batch.number)
        return changed

    def _to_spark(self, source_offsets: KafkaOffsets) -> str:
        state = self.state(source_offsets.source)
        if source_offsets.offsets not in state.kept():
            state.keep(source_offsets.offsets)
        if source_offsets.offsets.start is not None:
            state.keep_first(source_offsets.offsets.start)
        return compact(nested(source_offsets.offsets.by_partition))

    def _to_ours(self, source_offsets: KafkaOffsets, batch: int) -> str:
        found = self.restored(source_offsets)
        if batch == 0 and found.start is None:
            found = replace(found, start=self.state(source_offsets.source).first())
        return compact(found.to_json())


def log_lines(text: str, name: str) -> list[OffsetLogLine]:
    """The lines of a file of Spark's offset log, behind its first two. Raises `ConfigError` for an unknown version."""
    version, _, *rest = text.split("\n") + [""] * 2
    if version not in ("v1", "v2"):
        raise ConfigError(_OPTION, f"{name} has version {version!r}: v1 and v2 are known")
    found = []
    for index, line in enumerate(one for one in rest if one):
        source, colon, offsets = line.partition(":") if version == "v2" else (str(index), "", line)
        found.append(OffsetLogLine(source + colon if colon else "", offsets, _kafka(source, offsets)))
    return found


def _kafka(source: str, text: str) -> KafkaOffsets | None:
    """The offsets in a line, None for another source's."""
    try:
        decoded = json.loads(text)
        if not isinstance(decoded, dict) or not all(
            _is_topic(name, value) for name, value in decoded.items()
        ):
            return None
        offsets = StreamOffsets.from_json(decoded)
    except (ValueError, ConfigError):
        return None
    form: Form = "kafka-actors" if offsets.has_more_than_spark else "spark"
    return KafkaOffsets(source, form, offsets) if offsets.by_partition or form == "kafka-actors" else None


def _is_topic(name: str, value: Any) -> bool:
    return name.startswith("@") or (isinstance(value, dict) and all(key.isdecimal() for key in value))


def described(batches: list[OffsetLogBatch]) -> Iterator[OffsetLogBatch]:
    """The batches that a restart reads: the last finished one, and those planned behind it."""
    finished = [batch for batch in batches if batch.finished]
    yield from finished[-1:]
    yield from (batch for batch in batches if not finished or batch.number > finished[-1].number)
