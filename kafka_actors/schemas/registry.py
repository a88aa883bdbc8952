"""Schemas as a registry has them, and the part of a registry that decoders and encoders ask. The client is in `kafka_actors.registry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]
Version: TypeAlias = int | Literal["latest"]
SchemaKey: TypeAlias = int | str
"""Id of a schema, or its GUID as text: one of them stands in front of a value."""


class Reference(Struct, frozen=True):
    """Another schema that one refers to by `name`: a type of Avro's, an imported file of Protobuf's, an address of JSON Schema's."""

    name: str
    subject: str
    version: int


class Schema(Struct, frozen=True):
    """A schema of a registry. `subject` and `version` are empty and None where it was asked for by its id or GUID; `id` is -1 where the
    registry gave none, as for a GUID."""

    id: int
    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int | None = None
    guid: str = ""

    def __str__(self) -> str:
        return f"schema {self.guid if self.id < 0 else self.id}" + (
            f" ({self.subject} version {self.version})" if self.subject else ""
        )


@runtime_checkable
class Registry(Protocol):
    """Questions to a registry. Each method raises `SchemaNotFoundError`, or another `SchemaRegistryError`."""

    def schema_by_id(self, schema_id: int) -> Schema:
        """The schema with an id; it is kept, because it never changes."""
        ...

    def schema_by_guid(self, guid: str) -> Schema:
        """The schema with a GUID, which is the same in all registries; it is kept."""
        ...

    def schema_of(self, subject: str, version: Version = "latest") -> Schema:
        """The schema of a subject in a version."""
        ...

    def references_of(self, schema: Schema) -> Mapping[str, str]:
        """Texts of all schemas to which one refers, by the names that it uses; each after those to which it refers itself."""
        ...

    def known_schemas(self, subject: str) -> Mapping[SchemaKey, Schema]:
        """All versions of a subject, by id, and by GUID where the registry has those."""
        ...

    def register(self, subject: str, text: str, schema_type: SchemaType) -> int:
        """Registers a schema, unless the subject has it; returns its id."""
        ...

    def look_up(self, subject: str, text: str, schema_type: SchemaType) -> Schema:
        """The version of a subject that has this schema."""
        ...


def schema_by_key(registry: Registry, key: SchemaKey) -> Schema:
    """The schema with an id or a GUID. Raises as the registry."""
    return registry.schema_by_guid(key) if isinstance(key, str) else registry.schema_by_id(key)
