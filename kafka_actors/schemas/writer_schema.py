"""The schema by which a pipeline writes: looked up or registered once, when the pipeline is made ready, and kept from then on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from kafka_actors.errors import ConfigError

from .errors import SchemaNotFoundError, SchemaRegistryError, SchemaRegistryUnavailableError
from .registry import Registry, Schema, SchemaType
from .results import ValueEncoder

SubjectNameStrategy: TypeAlias = Literal["topic", "record", "topic_record"]


class ValueFormat(NamedTuple):
    """Format of values. `encoder` makes an encoder of a schema's text, with the keywords `references` and `schema_id`; `record_name` is the
    full name of the record that a text describes; `derive` makes a text of columns and a name, None where no format can."""

    schema_type: SchemaType
    encoder: Callable[..., ValueEncoder]
    record_name: Callable[[str], str]
    derive: Callable[[pa.Schema, str], str] | None = None


class WriterSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Says which schema of a registry values are written by.

    `subject` None is that of `strategy`. `text` None: the subject's latest version, or with `register` one that is derived from the
    columns. With a text it is the version that has this text; with `register` it is registered where none has.
    """

    registry: Registry
    format: ValueFormat
    subject: str | None = None
    strategy: SubjectNameStrategy = "topic"
    text: str | None = None
    register: bool = False

    def chosen(self, stage: str, topic: str, columns: pa.Schema | None) -> WrittenBy:
        """Asks the registry. Raises `ConfigError`, naming the stage, where a subject or a schema can't be made or is of another type, and
        `SchemaRegistryError`."""
        text = self._derived(stage, topic, columns) if self.register and self.text is None else self.text
        subject = self.subject or self._subject(stage, topic, text)
        schema = self._schema(stage, subject, text)
        kind = self.format.schema_type
        if schema.type != kind:
            raise ConfigError(stage, f"{schema} is of type {schema.type}, not {kind}: say the format of it")
        references = dict(self.registry.references_of(schema))
        try:
            made = self.format.encoder(schema.text, references=references, schema_id=schema.id)
        except ConfigError as error:
            which = "" if error.option == "schema" else f"{error.option} "
            raise ConfigError(stage, f"{schema}: {which}{error.message}") from error
        return WrittenBy(made, schema)

    def _schema(self, stage: str, subject: str, text: str | None) -> Schema:
        if text is None:
            return self.registry.schema_of(subject)
        try:
            return self._version_with(subject, text)
        except SchemaNotFoundError as error:
            if not self.register:
                raise SchemaNotFoundError(
                    f"{stage}: {error}; register the schema before, or say register=True"
                ) from None
        self.registry.register(subject, text, self.format.schema_type)
        return self._version_with(subject, text)

    def _version_with(self, subject: str, text: str) -> Schema:
        """The version of a subject that has this text. Where the text imports others, the registry has to be asked with the references of that
        version: the text doesn't say under which subjects and versions its imports are."""
        kind = self.format.schema_type
        try:
            return self.registry.look_up(subject, text, kind)
        except SchemaRegistryUnavailableError:
            raise
        except SchemaRegistryError:  # some registries refuse a text whose imports they can't find
            with suppress(SchemaNotFoundError):
                known = self.registry.known_schemas(subject).values()
                for references in {one.references: None for one in known if one.references}:
                    with suppress(SchemaNotFoundError):
                        return self.registry.look_up(subject, text, kind, references)
            raise

    def _derived(self, stage: str, topic: str, columns: pa.Schema | None) -> str:
        if self.format.derive is None:
            raise ConfigError(stage, "has register=True: say with schema= what is registered")
        if columns is None:
            raise ConfigError(
                stage,
                "has register=True, and its columns are known only at the start: say with schema= what is registered",
            )
        try:
            return self.format.derive(columns, topic)
        except ConfigError as error:
            raise ConfigError(stage, error.message) from error

    def _subject(self, stage: str, topic: str, text: str | None) -> str:
        if self.strategy == "topic":
            return f"{topic}-value"
        if text is None:
            raise ConfigError(
                stage,
                f"subject_name_strategy is {self.strategy!r}, and no schema names the record: say schema=, or subject=",
            )
        try:
            name = self.format.record_name(text)
        except ConfigError as error:
            raise ConfigError(stage, error.message) from error
        return name if self.strategy == "record" else f"{topic}-{name}"


class WrittenBy(NamedTuple):
    """Encoder by the chosen schema, and the schema."""

    encoder: Any
    schema: Schema
