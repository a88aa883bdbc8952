"""Client of schema registries that serve Confluent's API, as Apicurio, Karapace and Redpanda do too."""

from .client import SchemaRegistry

__all__ = ["SchemaRegistry"]
