"""The schema by which a pipeline reads: chosen in a registry once, when the pipeline is made ready, and kept from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from kafka_actors.errors import ConfigError

from .avro_decoder import AvroDecoder
from .protobuf_decoder import ProtobufDecoder
from .registry import Registry, Schema, SchemaKey, SchemaType, Version
from .results import ValueDecoder

OnNewSchema: TypeAlias = Literal["keep", "fail"]


class ReaderSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Says which schema of a registry values are read by.

    `subject` None is that of each topic's values, `{topic}-value`, or with `of="key"` of its keys, `{topic}-key`. `version` is a number or "latest"; `schema_id` names a schema
    by its id instead. `schema_type` None: whatever the registry says. `message` and `enums` are those of `ProtobufDecoder`,
    `validate` is that of the decoder that `json_decoder` makes of a JSON Schema.
    `on_new_schema`: what happens at a writer's schema that wasn't known when the pipeline was made ready.
    """

    registry: Registry
    subject: str | None = None
    version: Version = "latest"
    schema_id: int | None = None
    schema_type: SchemaType | None = None
    message: str | None = None
    enums: Literal["name", "number"] = "name"
    validate: bool = False
    on_new_schema: OnNewSchema = "keep"
    of: Literal["key", "value"] = "value"
    json_decoder: Callable[..., ValueDecoder] | None = None

    @property
    def pinned(self) -> bool:
        """Whether one schema is named, and not what happens to be the latest."""
        return self.schema_id is not None or self.version != "latest"

    def chosen(self, stage: str, topics: Iterable[str] | None) -> ChosenSchema:
        """Asks the registry. Raises `ConfigError`, naming the stage, where the topics' schemas give different columns or
        something can't be decoded, and `SchemaRegistryError`."""
        found = self._schemas(stage, topics)
        known: dict[SchemaKey, Schema] = {}
        for schema in found.values():
            known.update(self._versions(schema))
        decoders = {topic: self._decoder(stage, schema, known) for topic, schema in found.items()}
        (first, decoder), *others = decoders.items()
        for topic, other in others:
            if other.schema != decoder.schema:
                raise ConfigError(
                    stage,
                    f"the schemas of {first} and {topic} give different columns ({_names(decoder)}; {_names(other)}): "
                    "name one subject for all, or read each topic by itself",
                )
        return ChosenSchema(decoder, found[first], frozenset(known))

    def again(self, stage: str, schema_id: int, subject: str, version: int | None) -> ChosenSchema:
        """The schema that was chosen once before, whatever is the latest now. Raises as `chosen`."""
        found = msgspec.structs.replace(
            self.registry.schema_by_id(schema_id), subject=subject, version=version
        )
        versions = self._versions(found)
        return ChosenSchema(self._decoder(stage, found, versions), found, frozenset(versions))

    def _schemas(self, stage: str, topics: Iterable[str] | None) -> dict[str, Schema]:
        """The schema of each topic; under one name where one is named."""
        if self.schema_id is not None:
            return {"": self.registry.schema_by_id(self.schema_id)}
        if self.subject is not None:
            return {"": self.registry.schema_of(self.subject, self.version)}
        if not topics:
            raise ConfigError(
                stage, "the topics are given by a pattern: say with subject= whose schema holds"
            )
        return {topic: self.registry.schema_of(f"{topic}-{self.of}", self.version) for topic in topics}

    def _versions(self, schema: Schema) -> Mapping[SchemaKey, Schema]:
        """The versions of a schema's subject; itself where it was asked for by its id."""
        return self.registry.known_schemas(schema.subject) if schema.subject else {schema.id: schema}

    def _decoder(self, stage: str, schema: Schema, versions: Mapping[SchemaKey, Schema]) -> ValueDecoder:
        if self.schema_type is not None and schema.type != self.schema_type:
            raise ConfigError(
                stage, f"{schema} is of type {schema.type}, not {self.schema_type}: use .decode(registry)"
            )
        common: dict[str, Any] = {
            "registry": self.registry,
            "references": dict(self.registry.references_of(schema)),
            "subject": schema.subject,
            "known": versions,
            "on_new_schema": self.on_new_schema,
        }
        try:
            if schema.type == "AVRO":
                return AvroDecoder(schema.text, **common)
            if schema.type == "PROTOBUF":
                return ProtobufDecoder(
                    schema.text, message=self.message, enums=self.enums, schema_id=schema.id, **common
                )
            if schema.type != "JSON":
                raise ConfigError(stage, f"is of type {schema.type}: accepts Avro, Protobuf and JSON Schema")
            assert self.json_decoder is not None
            return self.json_decoder(schema.text, validate=self.validate, **common)
        except ConfigError as error:
            raise ConfigError(stage, f"{schema}: {error.message}") from error


class ChosenSchema(NamedTuple):
    """Decoder by the chosen schema, the schema, and the ids and GUIDs that are known beforehand."""

    decoder: ValueDecoder
    schema: Schema
    known: frozenset[SchemaKey]


def _names(decoder: ValueDecoder) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in decoder.schema)
