"""Schemas as a registry has them, and the part of a registry that decoders and encoders ask. The client is in `kafka_actors.registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from kafka_actors.errors import ConfigError

SchemaType: TypeAlias = Literal["AVRO", "PROTOBUF", "JSON"]
Version: TypeAlias = int | Literal["latest"]
SchemaKey: TypeAlias = int | str
"""Id of a schema, or its GUID as text: one of them stands in front of a value."""
SchemaAddress: TypeAlias = SchemaKey | tuple[str, int]
"""Id or GUID of a schema, or a subject and the number of its version."""


class Reference(Struct, frozen=True):
    """Another schema that one refers to by `name`: a type of Avro's, an imported file of Protobuf's, an address of JSON Schema's."""

    name: str
    subject: str
    version: int


class Schema(Struct, frozen=True):
    """A schema of a registry. `subject` and `version` are empty and None where it was asked for by its id or GUID; `id` is -1 where the
    registry gave none, as for a GUID. `type`: a `SchemaType`, or one that can't be read."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int | None = None
    guid: str = ""

    def __str__(self) -> str:
        return f"schema {self.guid if self.id < 0 else self.id}" + (
            f" ({self.subject} version {self.version})" if self.subject else ""
        )


def named_schema(key: SchemaKey, known: Mapping[SchemaKey, Schema], subject: str | None) -> str:
    """The writer's schema with this id or GUID in an error, with its subject; `subject` is that of those which aren't `known`."""
    found = known.get(key)
    named = subject if found is None else found.subject
    return f"schema {key}" + (f" (subject {named})" if named else "")


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

    def look_up(
        self, subject: str, text: str, schema_type: SchemaType, references: Sequence[Reference] = ()
    ) -> Schema:
        """The version of a subject that has this schema with these references."""
        ...


@runtime_checkable
class SharedRegistry(Registry, Protocol):
    """A registry of which many processes have copies: one of them can ask for all."""

    def ask_first(self, other: Callable[[SchemaAddress], Schema | None]) -> None:
        """Has `other` asked before the registry. It returns None where it can't be asked, and raises as the registry."""
        ...


class SchemaRequest(Struct, frozen=True):
    """Question of a job's worker for a schema that it doesn't know, of one of the `registries` of its pipeline, by number."""

    registry: int
    address: SchemaAddress


def is_of_a_context(subject: str) -> bool:
    """Whether a subject is of a named context (`:.prod:orders-value`), which has schema ids of its own."""
    return subject.startswith(":.")


def check_subject(option: str, subject: str) -> None:
    """Checks the subject by which values are read. Raises `ConfigError` for one of a named context: each context has ids of its own, and
    the id in front of a value is looked up in that of the registry's address."""
    if is_of_a_context(subject):
        context, _, name = subject[1:].partition(":")
        raise ConfigError(
            option,
            f"is {subject!r}, of the context {context}, which has ids of its own: end the registry's address with /contexts/{context}, and "
            f"name the subject as {name!r}",
        )


def schema_at(registry: Registry, address: SchemaAddress) -> Schema:
    """The schema at an address. Raises as the registry."""
    if isinstance(address, tuple):
        return registry.schema_of(*address)
    return registry.schema_by_guid(address) if isinstance(address, str) else registry.schema_by_id(address)
