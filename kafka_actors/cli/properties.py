"""Kafka's client configuration files (`--command-config`): Java's .properties, with Java's names of options.

Files that Kafka's own tools read are read here unchanged; see `kafka_actors.java_options`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from kafka_actors.config import ClientConfig
from kafka_actors.errors import UsageError
from kafka_actors.java_options import from_java
from kafka_actors.properties import parse_properties
from kafka_actors.security import RENAMED

__all__ = ["read_client_properties"]

log = logging.getLogger(__name__)


def read_client_properties(path: str) -> dict[str, Any]:
    """The options of a file as `ClientConfig` names them. What a client doesn't need is left out, with a warning.

    Raises `UsageError` for a file that can't be read, `ConfigError` for an option that has no counterpart here.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--command-config {path}: {error}") from None
    given = {key.replace(".", "_"): value for key, value in parse_properties(text).items()}
    options = from_java(given).options
    known = {**dict.fromkeys(ClientConfig.__struct_fields__), **RENAMED}
    for name in sorted(options.keys() - known.keys()):
        log.warning("%s: %s is not an option of a connection and not used", path, name)
    return {name: value for name, value in options.items() if name in known}
