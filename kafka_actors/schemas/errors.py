"""Errors of encoded values and of schema registries."""

from __future__ import annotations

from typing import ClassVar

from kafka_actors.errors import KafkaActorsError

__all__ = [
    "DeserializationError",
    "SchemaNotFoundError",
    "SchemaRegistryError",
    "SchemaRegistryUnavailableError",
    "SerializationError",
]


class DeserializationError(KafkaActorsError, ValueError):
    """A value can't be decoded. `row`: its number among the values that were given; `reason`: why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"value {self.row}: {self.reason}"


class SerializationError(KafkaActorsError, ValueError):
    """A row can't be encoded. `row`: its number among the rows that were given; `reason`: why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row}: {self.reason}"


class SchemaRegistryError(KafkaActorsError):
    """A schema registry refused, or its answer can't be used. The text names its address, and the subject or id."""


class SchemaNotFoundError(SchemaRegistryError):
    """The registry has no such subject, version or id."""


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """The registry can't be reached, or fails: the same request may succeed later."""

    retriable: ClassVar[bool] = True
