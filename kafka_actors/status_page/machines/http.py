"""HTTP/1.1 for the status page (RFC 9112), from bytes to bytes: one GET or HEAD a connection.

Theory of operation. What arrives is the head of a request, which the server has read up to the empty line and
to `MOST_HEAD`. `parse` decides whether it is answered: it returns the request, or raises `BadRequest` with
the status and text of the response. There is no state: each response closes its connection, and bytes behind
the head, such as a body or a pipelined request, are never looked at. So nothing of one client's can be taken
for another's, and a slow client costs one connection.

- A server that is bound to loopback accepts only a loopback name in the Host header, because a foreign name
  that leads to 127.0.0.1 would let another site's page read this one (DNS rebinding). Any port is accepted:
  it may have been forwarded.
- Two Host headers are refused: a proxy in between may have believed the other.
- Methods that change something are refused, because nothing can be changed here: the page shows a job, it
  doesn't command it.
- `to_bytes` writes a response with headers that forbid caching, framing, other origins, and guesses at its
  type; what may run on the page is said by its own policy.

Errors are one line of text each, for whoever reads them with curl.
"""

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
"""Largest head of a request in bytes; those of browsers and Prometheus are far smaller."""

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
# Not to be cached, framed or read by other origins, or taken for another type.
ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# The Content-Security-Policy of all but the page: nothing in the response is run or loaded.
NOTHING = "default-src 'none'; frame-ancestors 'none'"

# RFC 9112: the request line, and a field line, whose name is a token (RFC 9110) directly before the colon.
_LINE = re.compile(r"([A-Z]+) (\S+) HTTP/1\.([01])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


class BadRequest(Exception):
    """Raised for a request that is refused with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpRequest(Struct, frozen=True):
    """A request. `query`: the first value of each name; `host`: the Host header, None where a client of HTTP/1.0 has none."""

    method: str
    path: str
    query: dict[str, str]
    host: str | None
    headers: dict[str, str]


class HttpResponse(Struct, frozen=True):
    """A response. `policy`: its Content-Security-Policy, which forbids everything by default."""

    status: int
    body: bytes
    content_type: str = TEXT
    policy: str = NOTHING
    headers: Mapping[str, str] = {}


def parse(head: bytes, *, only_here: bool) -> HttpRequest:
    """Request of this head. `only_here`: the server is bound to loopback, and refuses other names in the Host header.

    Raises `BadRequest`.
    """
    if len(head) > MOST_HEAD:
        raise BadRequest(431, f"the head of a request may have at most {MOST_HEAD} bytes")
    # Each byte is a character in latin-1, so that any head can be taken apart.
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise BadRequest(400, "this is not a request of HTTP/1.1")
    method, target, minor = match.groups()
    headers = _headers(lines)
    host = headers.get("host")
    if host is None and minor == "1":
        raise BadRequest(400, "the request has no Host")
    if only_here and host is not None and not _is_here(host):  # DNS rebinding; see the module
        raise BadRequest(421, "this address is for this machine: call it localhost or 127.0.0.1")
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD are answered: nothing can be changed here")
    try:
        parts = urlsplit(target)
    except ValueError:
        raise BadRequest(400, "this is not a path") from None
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return HttpRequest(method, unquote(parts.path), query, host, headers)


def _headers(lines: list[str]) -> dict[str, str]:
    """Headers by their names in small letters. Raises `BadRequest` for two Hosts, of which a proxy may have read the other."""
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
    """Whether a Host header names loopback, with any port, because another port may be forwarded here."""
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def plain(status: int, text: str) -> HttpResponse:
    """Response with one line of text."""
    headers = {"Allow": "GET, HEAD"} if status == 405 else {}
    return HttpResponse(status, f"{text}\n".encode(), headers=headers)


def to_bytes(response: HttpResponse, method: str) -> bytes:
    """Bytes of a response; without its body for a HEAD."""
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
