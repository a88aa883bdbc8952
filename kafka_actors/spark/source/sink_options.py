"""Options and columns of a write: names and refusals are those of Spark's own Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from kafka_actors.base.topics import check_topic
from kafka_actors.config import ProducerConfig
from kafka_actors.errors import ConfigError

from .case_insensitive import CaseInsensitiveOptions
from .client_options import ClientOptions
from .schema import HEADERS

_NAMES = ("topic", "includeHeaders")
_OF_SPARK = (
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "_asyncProgressTrackingOverrideSinkSupportCheck",
)
"""Options of a streaming write for Spark itself, which passes them on to the sink."""
_TYPES = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
}


class SinkOptions(Struct, frozen=True, kw_only=True):
    """Checked options of a write. `notes` are for the log: options without effect."""

    client: ClientOptions
    topic: str | None = None
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def producer(self) -> ProducerConfig:
        """The client's config, made now: references to secrets are resolved. Raises `ConfigError`."""
        return self.client.producer()


def parse_sink(raw: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Checks the options of a write, and the columns that it writes.

    Raises `ConfigError`, which names the option, or `schema` and the column, and says what is accepted.
    """
    options = CaseInsensitiveOptions(raw, (*_NAMES, *_OF_SPARK))
    client = ClientOptions(options.kafka, "producer")
    topic = options.text("topic")
    if topic is not None:
        check_topic(topic, "topic")
    parsed = SinkOptions(
        client=client,
        topic=topic,
        columns=_columns(schema, topic),
        notes=tuple(f"{name} has no effect here" for name in client.without_effect()),
    )
    parsed.producer  # noqa: B018  # raises for wrong client options
    return parsed


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
    wanted = HEADERS.dataType.jsonValue()
    return _shape(kind) == _shape(wanted)


def _shape(json: object) -> object:
    if isinstance(json, dict):
        return {
            key: _shape(value)
            for key, value in json.items()
            if key in ("type", "elementType", "fields", "name")
        }
    return [_shape(each) for each in json] if isinstance(json, list) else json
