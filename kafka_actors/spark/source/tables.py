"""Tables of a catalog: `CREATE TABLE orders USING kafka_actors OPTIONS (…)`.

Spark keeps a table's options and gives them when it asks for the schema, but not when the table is read (4.1 to 4.3,
when tried). What the schema's columns are said to be comes back, though: so the options are noted there.
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

_NOTE = "kafka_actors.options"
_OF_CATALOG = "provider"
"""The catalog adds this to the options of a table."""


def noted(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema; if it is that of a table, with its options noted.

    Raises `ConfigError` for a secret that is written out: a catalog shows what it keeps.
    """
    if _OF_CATALOG not in options:
        return schema
    for name, value in options.items():
        if name.startswith(KAFKA):
            _check_secret(name, value)
    first, *others = schema.fields
    note = {_NOTE: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, note), *others])


def options_of(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options given, and those of the table if it is one. Raises `UsageError` where there are neither."""
    for field in schema.fields:
        if _NOTE in field.metadata:
            kept: dict[str, str] = json.loads(field.metadata[_NOTE])
            return {**kept, **options}
    if not options:
        raise UsageError(
            "Spark gave no options: a table has to be created without columns of its own, so that it keeps them"
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
            "is written out, and a catalog shows what it keeps: refer to it by ${env:NAME} or ${file:path:key}",
        )
