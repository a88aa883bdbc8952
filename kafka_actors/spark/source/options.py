"""The options of the sources: names, defaults and refusals of Spark's own Kafka source.

`parse_batch` and `parse_stream` check all that can be checked without a broker. Names are case-insensitive: Spark
passes them in lower case, and errors have them as they are documented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from kafka_actors.base.paths import wrong_path
from kafka_actors.base.timeouts import MAX_WAIT_MS
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ConfigError
from kafka_actors.types import LATEST

from .data_source_options import INT_MAX, LONG_MAX, CaseInsensitiveOptions, ClientOptions
from .decode_options import NAMES as _DECODE_NAMES
from .decode_options import DecodeOptions, decode_options
from .machines.offset_ranges import Bound, CommittedBound, FixedBound, LogEnd, SpecificOffsets, at
from .machines.stream_offsets import StreamOffsets
from .selection import SELECTIONS, Selection, SubscribePattern, end_of, selection_of, start_of

_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_FORMS = ("offsetFormat", "stateLocation")
_WITHOUT_EFFECT = ("groupIdPrefix",)  # nothing here joins a group
_NAMES = (
    *SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_ENDS,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "commitOffsets",
    "pushFilters",
    *_FORMS,
    *_LIMITS,
    *_WITHOUT_EFFECT,
    *_DECODE_NAMES,
)
_GROUP_ID = "kafka.group.id"
_MAX_TRIGGER_DELAY_MS = 15 * 60_000


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Checked options that a batch read and a stream share. `notes` are for the log: options without effect."""

    client: ClientOptions
    selection: Selection
    start: Bound
    no_match: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    lookup_retries: int = 3
    lookup_retry_interval_ms: int = 1_000
    decode: DecodeOptions | None = None
    notes: tuple[str, ...] = ()

    @property
    def consumer(self) -> ConsumerConfig:
        """The client's config, made now: references to secrets are resolved. Raises `ConfigError`."""
        return self.client.consumer()


class BatchOptions(ReadOptions, frozen=True, kw_only=True):
    """Checked options of a batch read."""

    end: FixedBound = LogEnd.LATEST
    push_filters: bool = False


class StreamOptions(ReadOptions, frozen=True, kw_only=True):
    """Checked options of a stream. Limits count offsets.

    `ends` and `begin` are not options of the user's. `ends`: the stream reads only these partitions and exactly up to these
    offsets, whatever its trigger, as a backfill's history does. `begin`: the stream starts exactly there, whatever `start`
    says, as two streams do that have to start together.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = _MAX_TRIGGER_DELAY_MS
    group_id: str | None = None
    commit_offsets: bool = False
    offset_format: Literal["kafka-actors", "spark"] = "kafka-actors"
    state_location: str | None = None
    ends: StreamOffsets | None = None
    begin: StreamOffsets | None = None


def parse_batch(raw: Mapping[str, str]) -> BatchOptions:
    """Checks the options of a batch read. Raises `ConfigError` with the option's name and what it accepts."""
    options = CaseInsensitiveOptions(raw, _NAMES)
    client = ClientOptions(options.kafka)
    if options.boolean("commitOffsets", False):
        raise ConfigError(
            "commitOffsets", "is for streams: Spark does not tell a source when a batch read has finished"
        )
    notes = [f"{name} has no effect in a batch read" for name in options.present((*_LIMITS, *_FORMS))]
    parsed = BatchOptions(
        client=client,
        selection=selection_of(options),
        start=start_of(options, streaming=False),
        end=end_of(options),
        push_filters=options.boolean("pushFilters", False),
        notes=_notes(options, notes, client.without_effect()),
        **_shared(options),
    )
    _check_order(parsed)
    _check_client(parsed)
    return parsed


def parse_stream(raw: Mapping[str, str], *, limits: bool) -> StreamOptions:
    """Checks the options of a stream. `limits`: whether this Spark lets a source limit a batch (from 4.2 on).

    Raises `ConfigError` with the option's name and what it accepts.
    """
    options = CaseInsensitiveOptions(raw, _NAMES)
    for name in options.present(_ENDS):
        raise ConfigError(name, "is not for a stream, which has no end: use spark.read")
    if options.boolean("pushFilters", False):
        raise ConfigError("pushFilters", "is for batch reads: Spark passes no filters to a stream")
    for name in options.present(_LIMITS):
        if not limits:
            raise ConfigError(name, "needs Spark 4.2 or newer: before, a Python source can't limit a batch")
    client = ClientOptions(options.kafka)
    group_id = options.kafka.get(_GROUP_ID, "").strip() or None
    parsed = StreamOptions(
        client=client,
        selection=selection_of(options),
        start=start_of(options, streaming=True),
        max_offsets=options.number("maxOffsetsPerTrigger", None, 1, LONG_MAX),
        min_offsets=options.number("minOffsetsPerTrigger", None, 1, LONG_MAX),
        max_trigger_delay_ms=options.duration_ms("maxTriggerDelay", _MAX_TRIGGER_DELAY_MS),
        group_id=group_id,
        commit_offsets=options.boolean("commitOffsets", False),
        offset_format=options.choice("offsetFormat", ("kafka-actors", "spark"), "kafka-actors"),  # type: ignore[arg-type]
        state_location=_state_location(options),
        notes=_notes(options, [], client.without_effect(_used(options))),
        **_shared(options),
    )
    _check_stream(parsed)
    _check_client(parsed)
    return parsed


def is_for_a_stream(options: Mapping[str, str]) -> bool:
    """Whether only a stream can have these options, so that other errors in them are reported as a stream's."""
    values = {name.lower(): value.strip().lower() for name, value in options.items()}
    return values.get("commitoffsets") == "true" or values.get("startingoffsets") in ("latest", "committed")


def _shared(options: CaseInsensitiveOptions) -> dict[str, Any]:
    no_match = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return {
        "no_match": no_match,
        "fail_on_data_loss": options.boolean("failOnDataLoss", True),
        "min_partitions": options.number("minPartitions", None, 1, INT_MAX),
        "max_records_per_partition": options.number("maxRecordsPerPartition", None, 1, LONG_MAX),
        "include_headers": options.boolean("includeHeaders", False),
        "poll_timeout_ms": _wait_ms(options, "kafkaConsumer.pollTimeoutMs", 120_000, 1),
        "lookup_retries": options.number("fetchOffset.numRetries", 3, 0, INT_MAX),
        "lookup_retry_interval_ms": _wait_ms(options, "fetchOffset.retryIntervalMs", 1_000, 0),
        "decode": decode_options(options),
    }


def _wait_ms(options: CaseInsensitiveOptions, name: str, default: int, lowest: int) -> int:
    """A wait, as long as a thread can wait at most. Raises `ConfigError` for a number that Spark doesn't take."""
    found = options.number(name, default, lowest, LONG_MAX)
    assert found is not None  # there is a default
    return min(found, MAX_WAIT_MS)


def _notes(options: CaseInsensitiveOptions, notes: list[str], ignored: list[str]) -> tuple[str, ...]:
    without = [
        f"{name} has no effect: no consumer group is joined" for name in options.present(_WITHOUT_EFFECT)
    ]
    return (*without, *notes, *(f"{name} has no effect here" for name in ignored))


def _used(options: CaseInsensitiveOptions) -> frozenset[str]:
    """Client options that have an effect in this stream, though not in every one."""
    from_group = (options.text("startingOffsets") or "").lower() == "committed"
    return frozenset({_GROUP_ID} if from_group or options.boolean("commitOffsets", False) else ())


def _state_location(options: CaseInsensitiveOptions) -> str | None:
    name = "stateLocation"
    location = options.text(name)
    if location is None:
        return None
    if wrong := wrong_path(location):
        raise ConfigError(name, wrong)
    if "://" not in location and not location.startswith("/"):
        raise ConfigError(name, f"is {location!r}: accepts a whole path, or a URI")
    return location.rstrip("/")


def _check_client(options: ReadOptions) -> None:
    """Raises `ConfigError` for wrong options of the client, and for internal topics by a pattern."""
    if not options.consumer.exclude_internal_topics and isinstance(options.selection, SubscribePattern):
        raise ConfigError(
            "kafka.exclude.internal.topics",
            "is false: a pattern matches no internal topic here; name them in subscribe",
        )


def _check_order(options: BatchOptions) -> None:
    start, end = options.start, options.end
    if not isinstance(start, SpecificOffsets) or not isinstance(end, SpecificOffsets):
        return
    for tp, first in start.by_partition.items():
        last = end.by_partition.get(tp, LATEST)
        if 0 <= last < first:
            raise ConfigError(end.option, f"has {last} for {at(tp)}, below its {start.option}, {first}")


def _check_stream(options: StreamOptions) -> None:
    if options.offset_format == "spark" and options.state_location is None:
        raise ConfigError(
            "offsetFormat",
            "is 'spark', which has no place for topic ids and for the first start: stateLocation has to say where they are "
            "stored, best in sources/0 in the query's checkpoint, where Spark's own source looks for its first start",
        )
    least, most = options.min_offsets, options.max_offsets
    if least is not None and most is not None and least > most:
        raise ConfigError("minOffsetsPerTrigger", f"is {least}: more than maxOffsetsPerTrigger, {most}")
    if options.group_id is not None:
        return
    if options.commit_offsets:
        raise ConfigError("commitOffsets", f"is true: {_GROUP_ID} has to say for which group")
    if isinstance(options.start, CommittedBound):
        raise ConfigError("startingOffsets", f"is 'committed': {_GROUP_ID} has to say by which group")
