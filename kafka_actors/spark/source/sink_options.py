"""The options of the sinks, and the columns that are written: names, defaults and refusals of Spark's own Kafka sink."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec import Struct
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from kafka_actors.base.topics import check_topic
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import ConfigError

from .data_source_options import CaseInsensitiveOptions, ClientOptions
from .machines.task_markers import PREFIX
from .schema import HEADERS

_TRANSACTIONAL, _PLAN, _MARKER_TOPIC = "transactional", "transactional.plan", "transactional.marker.topic"
_WRITE_NAMES = ("topic", "includeHeaders", _TRANSACTIONAL, _PLAN, _MARKER_TOPIC)
_ASYNC_PROGRESS = "asyncProgressTrackingEnabled"
_STREAM_WRITE_NAMES = (
    _ASYNC_PROGRESS,
    "asyncProgressTrackingCheckpointIntervalMs",
    "_asyncProgressTrackingOverrideSinkSupportCheck",
)
"""Options of a streaming write for Spark itself, which passes them on to the sink."""
_OF_A_SHAPE = ("type", "elementType", "fields", "name")  # not whether it may be null, not the metadata
_TYPES = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
}


class TransactionalOptions(Struct, frozen=True):
    """Options of a transactional write: the topic whose partition 0 has the markers, the digest of the plan's split options, and the
    checkpoint, where it is known."""

    marker_topic: str
    splits: str
    checkpoint: str | None = None


class SinkOptions(Struct, frozen=True, kw_only=True):
    """Checked options of a write. `notes` are for the log: options without effect."""

    client: ClientOptions
    topic: str | None = None
    columns: tuple[str, ...] = ()
    transactional: TransactionalOptions | None = None
    notes: tuple[str, ...] = ()

    @property
    def producer(self) -> ProducerConfig:
        """The client's config, made now: references to secrets are resolved. Raises `ConfigError`."""
        return self.client.producer()

    @property
    def transactional_producer(self) -> ProducerConfig:
        """The client's config with transactions, each under a transactional id that its task gives. Raises `ConfigError`."""
        return self.client.producer(PREFIX)


def parse_sink(raw: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Checks the options of a write, and the columns that it writes.

    Raises `ConfigError`, which names the option, or `schema` and the column, and says what is accepted.
    """
    options = CaseInsensitiveOptions(raw, (*_WRITE_NAMES, *_STREAM_WRITE_NAMES))
    client = ClientOptions(options.kafka, "producer")
    topic = options.text("topic")
    if topic is not None:
        check_topic(topic, "topic")
    columns = _columns(schema, topic)
    transactional = _transactional(options, raw, schema, topic)
    unused = [] if transactional is not None else options.present((_PLAN, _MARKER_TOPIC))
    parsed = SinkOptions(
        client=client,
        topic=topic,
        columns=columns,
        transactional=transactional,
        notes=tuple(f"{name} has no effect here" for name in [*client.without_effect(), *unused]),
    )
    _ = parsed.producer if transactional is None else parsed.transactional_producer
    return parsed


def _transactional(
    options: CaseInsensitiveOptions, raw: Mapping[str, str], schema: StructType, topic: str | None
) -> TransactionalOptions | None:
    if not options.boolean(_TRANSACTIONAL, False):
        return None
    if options.boolean(_ASYNC_PROGRESS, False):
        raise ConfigError(
            _ASYNC_PROGRESS,
            "is true: micro-batches are in the checkpoint's log long after they are written then, so a replay is of others; leave it out "
            f"where {_TRANSACTIONAL} is true",
        )
    plan = options.text(_PLAN)
    if plan is None:
        raise ConfigError(
            _TRANSACTIONAL,
            "is true without the check of the plan, which can't be seen where rows are written: give "
            ".options(**kafka_actors.spark.transactional(df)), df being what is written",
        )
    form, _, rest = plan.partition(":")
    splits, _, columns = rest.partition(":")
    if form != PLAN_FORM or not splits:
        raise ConfigError(
            _PLAN, f"is {plan!r}: it has to be what kafka_actors.spark.transactional(df) returns"
        )
    if columns != schema_digest(schema):
        raise ConfigError(
            _PLAN, "is of a DataFrame with other columns: call transactional() with the one that is written"
        )
    marker_topic = options.text(_MARKER_TOPIC) or topic
    if marker_topic is None:
        raise ConfigError(
            _MARKER_TOPIC,
            "is missing: rows name their topics, so say under which topic the markers of tasks are committed",
        )
    check_topic(marker_topic, _MARKER_TOPIC)
    lower = {name.lower(): value for name, value in raw.items()}
    return TransactionalOptions(marker_topic, splits, lower.get("checkpointlocation"))


PLAN_FORM = "1"
"""Form of the option `transactional.plan`: form, digest of the split options, digest of the columns."""


def transactional_options(splits: str, schema: StructType) -> dict[str, str]:
    """Options with which a sink writes the rows of a plan that was checked, in transactions."""
    return {_TRANSACTIONAL: "true", _PLAN: f"{PLAN_FORM}:{splits}:{schema_digest(schema)}"}


def schema_digest(schema: StructType) -> str:
    """Digest of the names and types of columns."""
    text = "\n".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The columns to write, in the order of the schema; others are ignored, as by Spark's own sink."""
    if "value" not in schema.names:
        raise ConfigError("schema", "has no column 'value', which is what is written")
    if "topic" not in schema.names and topic is None:
        raise ConfigError(
            "topic", "is missing: name the topic in this option, or for each row in a column 'topic'"
        )
    columns = []
    for field in schema.fields:
        if field.name == "headers":
            if not _are_headers(field.dataType.jsonValue()):
                raise ConfigError(
                    "schema",
                    f"column 'headers' is {field.dataType.simpleString()}: it must be "
                    f"{HEADERS.dataType.simpleString()}",
                )
        elif field.name not in _TYPES or (field.name == "topic" and topic is not None):
            continue
        elif not isinstance(field.dataType, _TYPES[field.name]):
            accepted = " or ".join(kind().simpleString() for kind in _TYPES[field.name])
            raise ConfigError(
                "schema",
                f"column {field.name!r} is {field.dataType.simpleString()}: it must be {accepted}",
            )
        if field.name in columns:
            raise ConfigError("schema", f"has more than one column {field.name!r}")
        columns.append(field.name)
    return tuple(columns)


def _are_headers(kind: object) -> bool:
    """Whether a type, in JSON, is that of headers, whatever in it may be null."""
    return _shape(kind) == _shape(HEADERS.dataType.jsonValue())


def _shape(json: object) -> object:
    if isinstance(json, dict):
        return {key: _shape(value) for key, value in json.items() if key in _OF_A_SHAPE}
    return [_shape(each) for each in json] if isinstance(json, list) else json
