"""Schema of a query's values: the one that was chosen at the query's first start, which its checkpoint has in the offsets.

A query that goes on looks its schema up anew before it knows its checkpoint. Where that is another one than before, the one before is kept as
long as both give the same columns; where they don't, the query is refused, because Spark has planned it with the new ones already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from msgspec import Struct

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import Schema, SchemaNotFoundError

from .machines.stream_offsets import KeptSchema, StreamOffsets

_MOST_NAMED = 5


class ReadBy(Struct, frozen=True):
    """Another schema for the values of a batch than the one that the query was planned with; `references` are the texts to which it refers."""

    schema: Schema
    references: dict[str, str]


class QuerySchema:
    """Schema of the values that a stream's driver plans. `chosen` is the one with which Spark has planned the query, and `decoder` the one that
    decodes by it; `pinned`: the user named it, so it takes the place of any other. `option` names in errors what would pin a schema,
    and `pin` makes an example of a version's number."""

    def __init__(
        self, decoder: Any, registry: Any, chosen: Schema, *, pinned: bool, option: str, pin: str
    ) -> None:
        self._decoder = decoder
        self._registry = registry
        self._chosen = KeptSchema(chosen.id, chosen.subject, chosen.version)
        self._pinned = pinned
        self._option = option
        self._pin = pin
        self._others: dict[int, ReadBy] = {}

    def of(self, base: StreamOffsets) -> KeptSchema:
        """The schema of a batch that begins at `base`, for its end in the checkpoint. Raises as `read_by`."""
        return self._chosen if self._other(base.schema) is None or base.schema is None else base.schema

    def read_by(self, start: StreamOffsets, end: StreamOffsets) -> ReadBy | None:
        """The schema of the values between two offsets, None for the chosen one. Raises `ConfigError` where the query has read by a schema
        with other columns, and `SchemaRegistryError` where the registry can't be asked for it."""
        return self._other(start.schema or end.schema)

    def _other(self, kept: KeptSchema | None) -> ReadBy | None:
        if kept is None or self._pinned or kept.id == self._chosen.id:
            return None
        if kept.id not in self._others:
            self._others[kept.id] = self._checked(kept)
        return self._others[kept.id]

    def _checked(self, kept: KeptSchema) -> ReadBy:
        try:
            schema = self._registry.schema_by_id(kept.id)
        except SchemaNotFoundError as error:
            raise ConfigError(
                self._option, f"the query has read by {kept} since its first start: {error}"
            ) from None
        references: Mapping[str, str] = self._registry.references_of(schema)
        try:
            before: pa.Schema = self._decoder.read_by(schema, references).schema
        except ConfigError as error:
            raise ConfigError(self._option, self._refusal(kept, error.message)) from error
        if not before.equals(self._decoder.schema):
            raise ConfigError(self._option, self._refusal(kept, _difference(before, self._decoder.schema)))
        return ReadBy(schema, dict(references))

    def _refusal(self, kept: KeptSchema, why: str) -> str:
        now = self._chosen
        advice = (
            f": keep it with {self._pin}{kept.version}, or go on by the new one with {self._pin}{now.version}"
            if kept.version and now.version
            else ": name the schema that holds"
        )
        return f"the latest is {now} now, while the query has read by {kept} since its first start ({why}){advice}"


def _difference(before: pa.Schema, now: pa.Schema) -> str:
    """The differences between the columns of two schemas."""
    changes = [f"{name} is new" for name in now.names if name not in before.names]
    changes += [f"{name} is gone" for name in before.names if name not in now.names]
    changes += [
        f"{field.name} was {_shown(field)}, is {_shown(now.field(field.name))}"
        for field in before
        if field.name in now.names and not field.equals(now.field(field.name))
    ]
    if not changes:
        return "the order of the columns differs"
    more = f" and {len(changes) - _MOST_NAMED} more" if len(changes) > _MOST_NAMED else ""
    return f"columns: {', '.join(changes[:_MOST_NAMED])}{more}"


def _shown(field: Any) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
