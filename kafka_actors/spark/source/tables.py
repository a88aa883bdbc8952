"""Tables of a catalog: `CREATE TABLE orders USING kafka_actors OPTIONS (…)`.

Spark passes a table's options when it asks for the schema, but not when the table is read (as tried with 4.1 to 4.3). It
does pass back the metadata of the schema's columns, so the options are stored there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from kafka_actors.config.java_security import login_of
from kafka_actors.config.references import refers
from kafka_actors.config.security import SECRETS
from kafka_actors.errors import ConfigError, UsageError

from .case_insensitive import KAFKA

_METADATA_KEY = "kafka_actors.options"
_OF_CATALOG = "provider"
"""Option that the catalog adds to those of a table."""


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema; for a table with its options in the first column's metadata.

    Raises `ConfigError` for a secret in plain text, because a catalog shows its tables' options.
    """
    if _OF_CATALOG not in options:
        return schema
    for name, value in options.items():
        if name.startswith(KAFKA):
            _check_secret(name, value)
    first, *others = schema.fields
    metadata = {_METADATA_KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_of(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options, and those in the metadata of a table's schema. Raises `UsageError` where there are neither."""
    for field in schema.fields:
        if _METADATA_KEY in field.metadata:
            kept: dict[str, str] = json.loads(field.metadata[_METADATA_KEY])
            return {**kept, **options}
    if not options:
        raise UsageError(
            "Spark passed no options: a table has to be created without columns of its own, so that it keeps them"
        )
    return options


def _check_secret(name: str, value: str) -> None:
    field = name.removeprefix(KAFKA).replace(".", "_")
    if field == "sasl_jaas_config":
        secrets = [text for ours, text in login_of(name, value).items() if ours in SECRETS]
    else:
        secrets = [value] if "password" in field or "secret" in field else []
    if not all(refers(text) for text in secrets):
        raise ConfigError(
            name,
            "is in plain text, and a catalog shows a table's options: refer to it by ${env:NAME} or ${file:path:key}",
        )
