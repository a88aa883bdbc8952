"""Names of Java's enums and their codes on the wire: for ACLs, and for settings of resources.

Theory of operation. The admin's arguments and results have names, as Java's enums do, and requests have
numbers. Each table here is one enum, in the order of its codes. Both ways are total:

- `code_of` refuses what the table lacks with the names that there are, so a misspelt argument is found before
  anything is sent.
- `name_of` shows a code that is newer than this table as UNKNOWN: a later broker's answer can still be read.
  UNKNOWN is refused as an argument, since it would be sent as something else than what was read.

ANY, which filters of ACLs have for "every value", is None in arguments and in no table. Nor is the UNKNOWN of
Kafka's enums for ACLs, code 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.errors import UsageError, kind_of

__all__ = [
    "ANY",
    "CONFIG_OPERATIONS",
    "CONFIG_RESOURCES",
    "CONFIG_SOURCES",
    "CONFIG_TYPES",
    "OPERATIONS",
    "PATTERN_TYPES",
    "PERMISSION_TYPES",
    "RESOURCE_TYPES",
    "UNKNOWN",
    "code_of",
    "name_of",
]

UNKNOWN = "UNKNOWN"
ANY = 1
"""Code by which a filter of ACLs takes every value."""

Codes = Mapping[str, int]


def _numbered(names: str, first: int) -> Codes:
    return {name: code for code, name in enumerate(names.split(), first)}


OPERATIONS = _numbered(
    """ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE
    CREATE_TOKENS DESCRIBE_TOKENS TWO_PHASE_COMMIT""",
    2,
)
"""`AclOperation`; each code is also the number of its bit in a response (KIP-430)."""
RESOURCE_TYPES = _numbered("TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER", 2)
"""`ResourceType`, of ACLs."""
PATTERN_TYPES = _numbered("MATCH LITERAL PREFIXED", 2)
"""`PatternType`; MATCH is for filters alone."""
PERMISSION_TYPES = _numbered("DENY ALLOW", 2)
"""`AclPermissionType`."""
CONFIG_RESOURCES: Codes = {"TOPIC": 2, "BROKER": 4, "BROKER_LOGGER": 8, "CLIENT_METRICS": 16, "GROUP": 32}
"""`ConfigResource.Type`."""
CONFIG_OPERATIONS = _numbered("SET DELETE APPEND SUBTRACT", 0)
"""`AlterConfigOp.OpType`."""
CONFIG_SOURCES = _numbered(
    """DYNAMIC_TOPIC_CONFIG DYNAMIC_BROKER_CONFIG DYNAMIC_DEFAULT_BROKER_CONFIG STATIC_BROKER_CONFIG DEFAULT_CONFIG
    DYNAMIC_BROKER_LOGGER_CONFIG DYNAMIC_CLIENT_METRICS_CONFIG DYNAMIC_GROUP_CONFIG""",
    1,
)
"""`ConfigEntry.ConfigSource`."""
CONFIG_TYPES = _numbered("BOOLEAN STRING INT SHORT LONG DOUBLE LIST CLASS PASSWORD", 1)
"""`ConfigEntry.ConfigType`."""


def code_of(codes: Codes, name: object, argument: str) -> int:
    """Code of a name. Raises `UsageError` for any other value, with the names that there are."""
    code = codes.get(name) if isinstance(name, str) else None
    if code is None:
        raise UsageError(f"{argument} is {name!r}, {kind_of(name)}: accepts {', '.join(codes)}")
    return code


def name_of(codes: Codes, code: int) -> str:
    """Name of a code; UNKNOWN for one that the table lacks."""
    return next((name for name, known in codes.items() if known == code), UNKNOWN)
