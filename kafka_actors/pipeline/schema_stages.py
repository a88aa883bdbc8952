"""Stages that decode keys and values by a schema, which a registry may be asked for when the pipeline is made ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.schemas.reader_schema import ChosenSchema, ReaderSchema, versions_of_topics
from kafka_actors.schemas.registry import Registry, Schema, SchemaKey

from .rows import check_names
from .stages import LATE, Columns, Stage, own_columns


class SchemaStage(Stage, frozen=True, kw_only=True, eq=False):
    """Base of stages that decode by a schema. `decoder` None: `reader` says which schema of a registry it will be, once the pipeline is made
    ready. `registry` is the one of values' schemas where the reader's was given and new ones are to fail. `chosen` is the schema that it was,
    and `chosen_schema` the whole of it; `known` are the ids and GUIDs of writers' schemas that were known then, None where no registry was
    asked."""

    decoder: Any = None
    reader: ReaderSchema | None = None
    registry: Registry | None = None
    chosen: str = ""
    chosen_schema: Schema | None = None
    known: frozenset[SchemaKey] | None = None

    def ready(self, topics: Sequence[str] | None) -> Self:
        """The stage with its decoder, for which the registry is asked. Raises `ConfigError`, `SchemaRegistryError`."""
        if self.registry is not None and self.known is None:
            known = versions_of_topics(self.name, self.registry, topics, "fail")
            return msgspec.structs.replace(self, decoder=self.decoder.knowing(known), known=frozenset(known))
        if self.decoder is not None or self.reader is None:
            return self
        return self._by(self.reader.chosen(self.name, topics))

    def unready(self) -> Self:
        """The stage before it was made ready, for other topics, whose schemas are others."""
        decoder = self.decoder if self.reader is None else None
        return msgspec.structs.replace(self, decoder=decoder, chosen="", chosen_schema=None, known=None)

    @property
    def is_open(self) -> bool:
        """Whether its schema is a registry's that isn't named, but the latest at the first start."""
        return self.reader is not None and not self.reader.pinned

    def again(self, schema_id: int, subject: str, version: int | None, topics: Sequence[str] | None) -> Self:
        """The stage with the decoder by the schema that was chosen at an earlier start. Raises as `ready`."""
        assert self.reader is not None
        return self._by(self.reader.again(self.name, schema_id, subject, version, topics))

    def _by(self, found: ChosenSchema) -> Self:
        return msgspec.structs.replace(
            self,
            decoder=found.decoder,
            chosen=str(found.schema),
            chosen_schema=found.schema,
            known=found.known,
        )


class Decode(SchemaStage, frozen=True, kw_only=True, eq=False):
    """Decodes values by a schema. Until it has a decoder the columns are `schema`, or unknown."""

    schema: pa.Schema | None = None

    def output(self, columns: Columns) -> Columns:
        own_columns(self, columns, "value")
        if self.decoder is None:
            return self.schema
        found: pa.Schema = self.decoder.schema
        check_names(self.name, found)
        if self.schema is not None and not self.schema.equals(found):
            raise ConfigError(
                self.name,
                f"schema: says {_listed(self.schema)}, and {self.chosen or 'the schema'} gives {_listed(found)}",
            )
        return found


class DecodeKey(SchemaStage, frozen=True, kw_only=True, eq=False):
    """Decodes keys by a schema into one more column."""

    column: str

    def output(self, columns: Columns) -> Columns:
        if self.decoder is None:
            return None
        if columns is None:
            raise ConfigError(self.name, LATE)
        at = columns.get_field_index(self.column)
        if at < 0:
            return columns.append(self.field)
        if self.column != "key" or not columns.equals(SCHEMA):
            raise ConfigError(
                self.name, f"there is a column {self.column!r} already: name another with column="
            )
        return columns.set(at, self.field)

    @property
    def field(self) -> pa.Field:
        """The column: a struct; or the key itself, where the schema is none of a record."""
        found: pa.Schema = self.decoder.schema
        return pa.field(
            self.column, pa.struct(list(found)) if self.decoder.of_records else found.field(0).type
        )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
