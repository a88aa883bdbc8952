"""Requests to a schema registry: several addresses, TLS, basic and bearer authentication, proxies, repeats.

The standard library's client is used: schemas are asked for once, so a pool of connections would stay idle, and no other package of
ours needs another client.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.config import ClientConfig
from kafka_actors.config.references import resolve
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConfigError, KafkaActorsError
from kafka_actors.net.security.oauth import NoRedirect, client_credentials, read_answer
from kafka_actors.net.security.tls import context_of
from kafka_actors.schemas.errors import (
    SchemaNotFoundError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
)

ROUNDS = 3
PAUSE_S = 0.2
MAX_PAUSE_S = 2.0
MAX_BYTES = 64 << 20
MAX_SHOWN = 300
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Access(Struct, frozen=True):
    """Addresses and credentials of a registry. Secrets may be references, which are looked up at each request."""

    urls: tuple[str, ...]
    security: ClientConfig
    basic_auth: Secret | None = None
    bearer_token: Secret | None = None
    oauth: bool = False
    proxy: str | None = None
    timeout_s: float = 10.0
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def detour(self) -> str:
        """The proxy in between, for errors, without its credentials; empty without one."""
        return (
            ""
            if self.proxy is None
            else f" by the proxy {urllib.parse.urlsplit(self.proxy).netloc.rpartition('@')[2]}"
        )

    @property
    def user(self) -> str:
        """The user or client that asks, for errors."""
        if self.basic_auth is not None:
            return f"user {resolve('basic_auth', self.basic_auth.reveal()).partition(':')[0]}"
        if self.oauth:
            return f"client {self.security.sasl_oauthbearer_client_credentials_client_id}"
        return "a bearer token" if self.bearer_token is not None else "nobody: no credentials were given"


class HttpClient:
    """Sends requests, and returns answers as JSON has them. It may be used by several threads."""

    def __init__(self, access: Access, sleep: Callable[[float], object] = time.sleep) -> None:
        self._access = access
        self._sleep = sleep

    def request(
        self,
        method: str,
        path: Sequence[str],
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        may_lack: bool = False,
    ) -> Any:
        """Sends a request to the first address that answers it. `what` names its subject or id in errors. `may_lack`: a registry that
        doesn't know such requests doesn't have it. Raises
        `SchemaNotFoundError` for what isn't there, `SchemaRegistryUnavailableError` where no address answers in three rounds, and
        `SchemaRegistryError` for any other refusal."""
        tail = "/".join(urllib.parse.quote(part, safe="") for part in path)
        if query:
            tail += "?" + urllib.parse.urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        problem = ""
        for attempt in range(1, ROUNDS + 1):
            for url in self._access.urls:
                try:
                    return self._send(method, url, tail, data, what)
                except _UnknownPath as unknown:
                    if may_lack:
                        raise SchemaNotFoundError(f"{what}: {url} doesn't have it") from None
                    raise unknown from None
                except _Passing as passing:
                    problem = str(passing)
            if attempt < ROUNDS:
                self._sleep(exponential_backoff(attempt, PAUSE_S, MAX_PAUSE_S))
        raise SchemaRegistryUnavailableError(f"{what}: no answer of the registry: {problem}")

    def _send(self, method: str, url: str, tail: str, data: bytes | None, what: str) -> Any:
        try:
            request = urllib.request.Request(
                f"{url}/{tail}", data, self._headers(data is not None), method=method
            )
            with self._opener().open(request, timeout=self._access.timeout_s) as response:
                return _json(url, read_answer(response, MAX_BYTES, self._access.timeout_s), what)
        except urllib.error.HTTPError as error:
            raise self._refused(url, error, what) from None
        except ConfigError as error:  # of a file or variable that this process lacks: no value is at fault
            raise SchemaRegistryError(f"{what}: {url} can't be asked: {error}") from None
        except ValueError:  # its text may show a secret
            raise SchemaRegistryError(
                f"{what}: {url} can't be asked: a token or header has a line's end, or a character that headers can't have"
            ) from None
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise SchemaRegistryError(
                    f"{what}: {url}: its certificate isn't trusted: {reason.verify_message}: give its CA as ssl_cafile"
                ) from None
            raise _Passing(f"{url}{self._access.detour}: {_one_line(str(reason))}") from None

    def _opener(self) -> urllib.request.OpenerDirector:
        access = self._access
        context = context_of(replace(access.security, security_protocol="SSL"))
        handlers: list[Any] = [urllib.request.HTTPSHandler(context=context), NoRedirect]
        if access.proxy is not None:
            handlers.append(urllib.request.ProxyHandler({"http": access.proxy, "https": access.proxy}))
        return urllib.request.build_opener(*handlers)

    def _headers(self, with_body: bool) -> dict[str, str]:
        access = self._access
        made = {"Accept": CONTENT_TYPE, **dict(access.headers)}
        if with_body:
            made["Content-Type"] = CONTENT_TYPE
        if access.basic_auth is not None:
            pair = resolve("basic_auth", access.basic_auth.reveal())
            made["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        elif access.oauth:
            made["Authorization"] = f"Bearer {self._token()}"
        elif access.bearer_token is not None:
            made["Authorization"] = f"Bearer {resolve('bearer_token', access.bearer_token.reveal())}"
        return made

    def _token(self) -> str:
        try:
            return client_credentials(self._access.security).reveal()
        except KafkaActorsError as error:
            kind = SchemaRegistryUnavailableError if error.retriable else SchemaRegistryError
            raise kind(f"no token for the registry: {error}") from error

    def _refused(self, url: str, error: urllib.error.HTTPError, what: str) -> Exception:
        try:
            code, said = _said(read_answer(error, MAX_BYTES, self._access.timeout_s))
        except (OSError, http.client.HTTPException) as cut:
            return _Passing(f"{url}: it answered {error.code}, and not to the end: {_one_line(str(cut))}")
        if error.code in (401, 403):
            return SchemaRegistryError(
                f"{what}: {url} refused {self._access.user} ({error.code}{said}): check credentials and rights"
            )
        if error.code == 404 and code in (40401, 40402, 40403):
            return SchemaNotFoundError(f"{what}: {url} doesn't have it{said}")
        if error.code == 404:
            return _UnknownPath(f"{what}: {url} answered 404: is it the address of a registry's API?")
        if error.code >= 500 or error.code in (408, 429):
            return _Passing(f"{url}: it answered {error.code}{said}")
        if 300 <= error.code < 400:
            return SchemaRegistryError(
                f"{what}: {url} redirects to {error.headers.get('Location')}: give that address"
            )
        return SchemaRegistryError(f"{what}: {url} refused it: {error.code}{said}")


class _UnknownPath(SchemaRegistryError):
    """The address is none of a registry's API, or of one that lacks this part of it."""


class _Passing(Exception):
    """An error after which another address, or the same one later, may answer."""


def _json(url: str, data: bytes, what: str) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        raise SchemaRegistryError(
            f"{what}: the answer of {url} is no JSON: is it the address of a registry's API?"
        ) from None


def _said(data: bytes) -> tuple[int, str]:
    """The registry's own code, 0 where it gave none, and its text."""
    try:
        answer = json.loads(data)
        code, text = int(answer.get("error_code", 0)), str(answer.get("message") or "")
    except (ValueError, AttributeError, TypeError):
        code, text = 0, ""
    return code, f": {_one_line(text)}" if text else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_SHOWN]
