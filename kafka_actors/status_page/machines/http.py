"""As much of HTTP as a status page needs: one GET or HEAD a connection. Bytes in, bytes out, no IO."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

__all__ = [
    "END_OF_HEAD",
    "MOST_HEAD",
    "BadRequest",
    "HttpRequest",
    "HttpResponse",
    "parse",
    "plain",
    "to_bytes",
]

END_OF_HEAD = b"\r\n\r\n"
MOST_HEAD = 16 * 1024
"""Bytes of a request's lines; none that a browser or Prometheus sends comes near."""

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"
# A page of this kind is of this moment, is nobody else's to frame or read, and is what it says it is.
ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NOTHING = "default-src 'none'; frame-ancestors 'none'"

_LINE = re.compile(r"([A-Z]+) (\S+) HTTP/1\.([01])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


class BadRequest(Exception):
    """A request that is answered without being looked at further. `status` and text are the answer's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpRequest(Struct, frozen=True):
    """`query`: the first value of each name. `host`: as the client calls this server, None where an old client doesn't say."""

    method: str
    path: str
    query: dict[str, str]
    host: str | None
    headers: dict[str, str]


class HttpResponse(Struct, frozen=True):
    """`policy`: the Content-Security-Policy; nothing may be done with what isn't the page."""

    status: int
    body: bytes
    content_type: str = TEXT
    policy: str = NOTHING
    headers: Mapping[str, str] = {}


def parse(head: bytes, *, only_here: bool) -> HttpRequest:
    """The request in these lines. `only_here`: the server is bound to loopback, and then is called by no other name: a foreign
    one that leads here is a page of somebody else's, which reads what isn't its own (DNS rebinding).

    Raises `BadRequest`.
    """
    if len(head) > MOST_HEAD:
        raise BadRequest(431, f"a request has {MOST_HEAD} bytes of lines at most")
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise BadRequest(400, "this is no request of HTTP/1.1")
    method, target, minor = match.groups()
    headers = _headers(lines)
    host = headers.get("host")
    if host is None and minor == "1":
        raise BadRequest(400, "the request has no Host")
    if only_here and host is not None and not _is_here(host):
        raise BadRequest(421, "this address is for this machine: call it localhost or 127.0.0.1")
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "there is nothing to be changed here: GET and HEAD alone are answered")
    try:
        parts = urlsplit(target)
    except ValueError:
        raise BadRequest(400, "this is no path") from None
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return HttpRequest(method, unquote(parts.path), query, host, headers)


def _headers(lines: list[str]) -> dict[str, str]:
    """By their names in small letters. One that is there twice would be read differently by somebody before us."""
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadRequest(400, "a header can't be read")
        name = field[1].lower()
        if name == "host" and name in headers:
            raise BadRequest(400, "the request has two Hosts")
        headers[name] = field[2]
    return headers


def _is_here(host: str) -> bool:
    """Whether a Host header means this machine, whatever the port: it may be forwarded from another one."""
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def plain(status: int, text: str) -> HttpResponse:
    """One line."""
    headers = {"Allow": "GET, HEAD"} if status == 405 else {}
    return HttpResponse(status, f"{text}\n".encode(), headers=headers)


def to_bytes(response: HttpResponse, method: str) -> bytes:
    """The response as it is sent; to a HEAD without its body."""
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Content-Security-Policy": response.policy,
        **ALWAYS,
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status} {REASONS[response.status]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines).encode("latin-1") + END_OF_HEAD
    return head if method == "HEAD" else head + response.body
