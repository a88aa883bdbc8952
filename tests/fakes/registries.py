"""A registry in memory, which decoders ask without a network."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kafka_actors.schemas import Schema, SchemaNotFoundError, SchemaRegistryUnavailableError
from kafka_actors.schemas.registry import SchemaKey


class RegistryInMemory:
    """Schemas by id; `asked` are the ids and GUIDs that were asked for, and while `away` is set nothing is answered."""

    def __init__(self) -> None:
        self.schemas: list[Schema] = []
        self.references: dict[str, str] = {}
        self.asked: list[int | str] = []
        self.away = False

    def add(self, subject: str, schema: Any, kind: Any = "AVRO", references: Any = ()) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        version = 1 + sum(one.subject == subject for one in self.schemas)
        guid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind} {text}"))
        self.schemas.append(Schema(len(self.schemas) + 1, kind, text, references, subject, version, guid))
        return len(self.schemas)

    def schema_by_id(self, schema_id: int) -> Schema:
        return replace(self._found(schema_id, lambda one: one.id == schema_id), subject="", version=None)

    def schema_by_guid(self, guid: str) -> Schema:
        return replace(self._found(guid, lambda one: one.guid == guid), id=-1, subject="", version=None)

    def _found(self, key: SchemaKey, names: Callable[[Schema], bool]) -> Schema:
        self.asked.append(key)
        if self.away:
            raise SchemaRegistryUnavailableError(f"schema {key}: no answer of the registry")
        found = next(filter(names, self.schemas), None)
        if found is None:
            raise SchemaNotFoundError(f"schema {key}: the registry doesn't have it")
        return found

    def schema_of(self, subject: str, version: Any = "latest") -> Schema:
        found = [one for one in self.schemas if one.subject == subject]
        if not found:
            raise SchemaNotFoundError(f"subject {subject}: the registry doesn't have it")
        return found[-1] if version == "latest" else found[version - 1]

    def references_of(self, schema: Schema) -> dict[str, str]:
        return self.references

    def known_schemas(self, subject: str) -> dict[SchemaKey, Schema]:
        found = [one for one in self.schemas if one.subject == subject]
        return {**{one.id: one for one in found}, **{one.guid: one for one in found}}

    def register(self, subject: str, text: str, schema_type: Any) -> int:
        try:
            return self.look_up(subject, text, schema_type).id
        except SchemaNotFoundError:
            return self.add(subject, text, schema_type)

    def look_up(self, subject: str, text: str, schema_type: Any, references: Any = ()) -> Schema:
        for one in self.schemas:
            if (one.subject, one.text, one.type, one.references) == (subject, text, schema_type, references):
                return one
        raise SchemaNotFoundError(f"subject {subject}: no version has this schema")
