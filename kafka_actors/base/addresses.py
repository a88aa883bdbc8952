"""Addresses as users write them: of brokers (`host`, `host:port`, `[ipv6]:port`, in a list or a comma-separated text), and
of servers that listen."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from kafka_actors.errors import ConfigError, kind_of

DEFAULT_PORT = 9092
_PORT = re.compile(r"[0-9]{1,5}")
_NOT_IN_A_NAME = re.compile(r"[\s/@;,'\"\\\[\]]")
"""Characters of URLs, quotes and other separators, which no host name has: a resolver would look such a name up."""
_USER_INFO = re.compile(r"(?<=://)((?!://).)*@")
MASKED = "***"
_ACCEPTS = "accepts 'host:port', '[ipv6]:port', a comma-separated text or a list of these"


def without_user_info(text: str, *, bare: bool = False) -> str:
    """A text whose URLs have `MASKED` in the place of user and password. `bare`: it is one address, which may lack its scheme."""
    if bare and "://" not in text:
        _, at, host = text.rpartition("@")
        return f"{MASKED}@{host}" if at else text
    return _USER_INFO.sub(f"{MASKED}@", text)


def _shown(text: str) -> str:
    return repr(without_user_info(text, bare=True))


def parse_bootstrap_servers(value: Any) -> list[str]:
    """Checks a list of broker addresses and returns each as `host:port` (IPv6 in brackets). Raises `ConfigError`."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, str) for p in parts):
        raise ConfigError("bootstrap_servers", f"is {kind_of(value)}: {_ACCEPTS}")
    # Kafka's own clients accept a trailing comma.
    stripped = [p.strip() for p in parts if p.strip()]
    if not stripped:
        raise ConfigError("bootstrap_servers", f"is empty: {_ACCEPTS}")
    return [format_address(*parse_address(p)) for p in stripped]


def parse_address(text: str) -> tuple[str, int]:
    """Splits one address into (host, port), with 9092 where no port is given. Raises `ConfigError`."""
    # Java's clients accept a listener name in front (PLAINTEXT://host:port), so people paste it.
    rest = text.split("://", 1)[-1].strip()
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or not _is_ipv6(host) or not (tail == "" or tail.startswith(":")):
            raise ConfigError(
                "bootstrap_servers", f"has {_shown(text)}: an IPv6 address needs the form [address]:port"
            )
        colon, port = tail[:1], tail[1:]
    elif _is_ipv6(rest):
        host, colon, port = rest, "", ""
    else:
        host, colon, port = rest.partition(":")
    if not host:
        raise ConfigError("bootstrap_servers", f"has {_shown(text)}: no host; {_ACCEPTS}")
    if not host.isprintable() or _NOT_IN_A_NAME.search(host):
        raise ConfigError(
            "bootstrap_servers", f"has {_shown(text)}: {_shown(host)} is not a valid host name; {_ACCEPTS}"
        )
    if not colon:
        return host, DEFAULT_PORT
    if _PORT.fullmatch(port) is None or not 0 < int(port) < 65536:
        raise ConfigError(
            "bootstrap_servers", f"has {_shown(text)}: {_shown(port)} is not a port (1 to 65535)"
        )
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def format_address(host: str, port: int) -> str:
    """The address as one text, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listening(option: str, text: str) -> tuple[str, int]:
    """Parses an address to listen on, `PORT`, `:PORT` or `HOST:PORT`, into (host, port). The host is localhost unless one is
    given; port 0 means any free port. Raises `ConfigError` for `option`."""
    host, _, port = text.strip().rpartition(":")
    inside = host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1])
    fits = inside or (":" not in host and host.isprintable() and _NOT_IN_A_NAME.search(host) is None)
    if _PORT.fullmatch(port) is None or int(port) > 65535 or not fits:
        raise ConfigError(option, f"is {_shown(text)}: give PORT, :PORT or HOST:PORT")
    return (host[1:-1] if inside else host) or "localhost", int(port)
