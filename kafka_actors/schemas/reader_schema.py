"""The schema by which a pipeline reads: chosen in a registry once, when the pipeline is made ready, and kept from then on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from kafka_actors.errors import ConfigError

from .avro_decoder import AvroDecoder
from .errors import SchemaNotFoundError
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
        """Asks the registry. Raises `ConfigError`, naming the stage, where the topics' schemas give different columns, one of them can't be
        read by the first one's, or something can't be decoded, and `SchemaRegistryError`."""
        topics = None if topics is None else tuple(topics)
        found = self._schemas(stage, topics)
        known = self._known(found.values(), topics)
        decoders = {topic: self._decoder(stage, schema, known) for topic, schema in found.items()}
        (first, decoder), *others = decoders.items()
        for topic, other in others:
            if other.schema != decoder.schema:
                raise ConfigError(
                    stage,
                    f"the schemas of {first} and {topic} give different columns ({_names(decoder)}; {_names(other)}): "
                    "name one subject for all, or read each topic by itself",
                )
            if reason := decoder.refusal(found[topic]):
                raise ConfigError(
                    stage,
                    f"values of {topic} can't be read by the schema of {first}: {reason}: read each topic by itself",
                )
        return ChosenSchema(decoder, found[first], frozenset(known))

    def again(
        self, stage: str, schema_id: int, subject: str, version: int | None, topics: Iterable[str] | None
    ) -> ChosenSchema:
        """The schema that was chosen once before, whatever is the latest now. Raises as `chosen`."""
        found = msgspec.structs.replace(
            self.registry.schema_by_id(schema_id), subject=subject, version=version
        )
        known = self._known((found,), topics)
        return ChosenSchema(self._decoder(stage, found, known), found, frozenset(known))

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

    def _known(self, chosen: Collection[Schema], topics: Iterable[str] | None) -> Mapping[SchemaKey, Schema]:
        """The schemas that are known beforehand: the chosen ones, the versions of their subjects, and of the topics' own. Where another
        subject or an id names the reader's, those are asked for only if new ones fail."""
        known = {key: schema for schema in chosen for key in (schema.id, schema.guid) if key != ""}
        subjects = {schema.subject: None for schema in chosen if schema.subject}
        for subject in subjects:
            known.update(self.registry.known_schemas(subject))
        if self.on_new_schema == "fail" or (self.subject is None and self.schema_id is None):
            own = (f"{topic}-{self.of}" for topic in topics or ())
            known.update(versions_of(self.registry, (each for each in own if each not in subjects)))
        return known

    def _decoder(self, stage: str, schema: Schema, known: Mapping[SchemaKey, Schema]) -> ValueDecoder:
        if self.schema_type is not None and schema.type != self.schema_type:
            raise ConfigError(
                stage, f"{schema} is of type {schema.type}, not {self.schema_type}: use .decode(registry)"
            )
        common: dict[str, Any] = {
            "registry": self.registry,
            "references": dict(self.registry.references_of(schema)),
            "subject": schema.subject if {one.subject for one in known.values()} == {schema.subject} else "",
            "known": known,
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


def versions_of(registry: Registry, subjects: Iterable[str]) -> dict[SchemaKey, Schema]:
    """All versions of subjects; of those that the registry doesn't have none. Raises `SchemaRegistryError`."""
    known: dict[SchemaKey, Schema] = {}
    for subject in subjects:
        try:
            known.update(registry.known_schemas(subject))
        except SchemaNotFoundError:
            continue
    return known


def versions_of_topics(
    stage: str, registry: Registry, topics: Iterable[str] | None, on_new_schema: OnNewSchema
) -> dict[SchemaKey, Schema]:
    """All versions of the subjects of topics' values, for a reader's schema that was given. Raises `ConfigError`, naming the stage, where new
    schemas fail and none is known, and `SchemaRegistryError`."""
    subjects = [f"{topic}-value" for topic in topics or ()]
    known = versions_of(registry, subjects)
    if not known and on_new_schema == "fail":
        why = (
            f"the registry has no subject {' or '.join(subjects)}"
            if subjects
            else "the topics are given by a pattern"
        )
        raise ConfigError(stage, f"on_new_schema is 'fail', and {why}: no schema of a value would be known")
    return known


def _names(decoder: ValueDecoder) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in decoder.schema)
