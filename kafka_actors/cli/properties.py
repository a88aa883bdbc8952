"""Kafka's client configuration files (`--command-config`): Java's .properties, with Java's names of options.

Files that Kafka's own tools read are read here unchanged, as far as their keys and certificates are PEM.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.security import RENAMED

__all__ = ["parse_properties", "read_client_properties"]

log = logging.getLogger(__name__)

_SEPARATOR = re.compile(r"(?:\\.|[^\\\s=:])*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;]+))""")
_LOGINS = ("PlainLoginModule", "ScramLoginModule")


def read_client_properties(path: str) -> dict[str, str]:
    """The options of a file as `ClientConfig` names them. What a client doesn't need is left out, with a warning.

    Raises `UsageError` for a file that can't be read, `ConfigError` for an option that has no counterpart here.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--command-config {path}: {error}") from None
    options = _translated({key.replace(".", "_"): value for key, value in parse_properties(text).items()})
    known = {**dict.fromkeys(ClientConfig.__struct_fields__), **RENAMED}
    for name in sorted(options.keys() - known.keys()):
        log.warning("%s: %s is not an option of a connection and not used", path, name)
    return {name: value for name, value in options.items() if name in known}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values as `java.util.Properties.load` reads them: comments, continued lines, escapes."""
    found = {}
    for line in _logical_lines(text):
        end = _SEPARATOR.match(line)
        assert end is not None  # it matches the empty text
        key, rest = line[: end.end()], line[end.end() :].lstrip(" \t\f")
        value = rest[1:].lstrip(" \t\f") if rest[:1] in ("=", ":") and rest else rest
        found[_unescaped(key)] = _unescaped(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    held = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not held and line[:1] in ("", "#", "!"):
            continue
        held += line
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
            continue
        lines.append(held)
        held = ""
    return lines + ([held] if held else [])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)


def _translated(options: Mapping[str, str]) -> dict[str, str]:
    """Java's names of what is the same thing here. Others stay: those that mean a JKS file are refused later."""
    taken = dict(options)
    if "sasl_jaas_config" in taken:
        taken |= _login(taken.pop("sasl_jaas_config"))
    if _is_pem(taken, "ssl_truststore_type"):
        _rename(taken, "ssl_truststore_location", "ssl_cafile")
    if _is_pem(taken, "ssl_keystore_type"):
        _rename(taken, "ssl_keystore_location", "ssl_certfile")  # with the key in the same file
        _rename(taken, "ssl_key_password", "ssl_password")
    algorithm = taken.pop("ssl_endpoint_identification_algorithm", "https")
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(
            "ssl_endpoint_identification_algorithm", f"is {algorithm!r}: accepts https or nothing"
        )
    if not algorithm:
        taken["ssl_check_hostname"] = "false"
    return taken


def _is_pem(options: dict[str, str], type_option: str) -> bool:
    if options.get(type_option, "").upper() != "PEM":
        return False
    del options[type_option]
    return True


def _rename(options: dict[str, str], theirs: str, ours: str) -> None:
    if theirs in options:
        options[ours] = options.pop(theirs)


def _login(jaas: str) -> dict[str, str]:
    """User and password of a login module, as in `…ScramLoginModule required username="u" password="p";`."""
    module, _, rest = jaas.strip().partition(" ")
    given = {m[1]: m[2] or m[3] or m[4] or "" for m in _JAAS_OPTION.finditer(rest)}
    given = {name: re.sub(r"\\(.)", r"\1", value) for name, value in given.items()}
    if not module.endswith(_LOGINS) or not {"username", "password"} <= given.keys():
        raise ConfigError(
            "sasl_jaas_config",
            f"names {module.rpartition('.')[2] or 'no module'}: user and password of a PlainLoginModule or "
            "ScramLoginModule are read from it; for other mechanisms give their own options",
        )
    return {"sasl_plain_username": given["username"], "sasl_plain_password": given["password"]}
