"""OAuth 2.0's client credentials (RFC 6749, 4.4) over HTTPS: the token of OAUTHBEARER where no provider is configured."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import math
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.config import ClientConfig
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, SaslError

from .assertion import ASSERTION_TYPE, assertion_of

_TIMEOUT_S = 10.0
_ATTEMPTS = 4
_PAUSE_S = 0.4
"""The pause after the first attempt; it doubles with each."""
_MAX_BYTES = 1 << 20
_MAX_SHOWN = 300
"""Characters of a server's text that are shown in an error."""
_FRESH = 0.8
"""The part of a token's life after which it is renewed, so that a session that begins with it lasts."""
_AGAIN_S = 5.0
"""Seconds until a failed renewal is tried again, as long as the old token is valid."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _CachedToken:
    """The token of one login, and the pending request for the next one. Times are the clock's."""

    token: Secret | None = None
    requested: float = 0.0
    renew_at: float = 0.0
    ends: float = 0.0
    pending: Future[Secret] | None = None


_lock = threading.Lock()  # held for moments only, never during a request
_tokens: dict[tuple[object, ...], _CachedToken] = {}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that secrets aren't sent to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


def client_credentials(
    config: ClientConfig,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Secret:
    """Returns a token by the `sasl_oauthbearer_` options, shared by the connections of this process.

    It is renewed in the background when most of its life is over, and used until it expires where that fails. The
    endpoint's certificate is checked by the system's CAs and those in `ssl_cafile`. Where the endpoint can't be reached or
    fails (5xx, 429), it is tried four times in all, then `ConnectionFailedError` is raised; `SaslError` where another
    try changes nothing.
    """
    with _lock:
        cached = _tokens.setdefault(_key(config), _CachedToken())
        now = clock()
        token = cached.token if now < cached.ends else None
        if token is not None and (now < cached.renew_at or cached.pending is not None):
            return token
        pending, first = cached.pending, cached.pending is None
        if pending is None:
            pending = cached.pending = Future()
    if first and token is None:
        _renew(cached, pending, config, clock, sleep)
    elif first:
        arguments = cached, pending, config, clock, sleep
        try:
            threading.Thread(target=_renew, args=arguments, name="kafka-actors-token", daemon=True).start()
        except RuntimeError:  # the system gives no thread; nobody else would end what is pending
            _renew(*arguments)
    return pending.result() if token is None else token


def forget(config: ClientConfig, token: Secret, before: float) -> bool:
    """Drops a token that a broker has refused. Returns whether another try sends another one: another connection has replaced it
    already, or it was requested before that time."""
    with _lock:
        cached = _tokens.get(_key(config))
        if cached is None:
            return False
        if cached.token != token:
            return cached.token is not None
        cached.ends = 0.0
        return cached.requested < before


def _key(config: ClientConfig) -> tuple[object, ...]:
    names = (name for name in config.__struct_fields__ if name.startswith("sasl_oauthbearer_"))
    # A request that is pending at a fork is never answered in the child.
    return (os.getpid(), *(getattr(config, name) for name in names))


def _renew(
    cached: _CachedToken,
    pending: Future[Secret],
    config: ClientConfig,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    requested = clock()
    try:
        token, lifetime = _fetch(config, sleep)
    except BaseException as error:
        with _lock:
            cached.pending, cached.renew_at = None, clock() + _AGAIN_S
            left = cached.ends - clock()
        if left > 0:
            log.warning("the token is used for its last %.0f s, because it can't be renewed: %s", left, error)
        pending.set_exception(error)
        return
    with _lock:
        cached.token, cached.requested, cached.pending = token, requested, None
        cached.renew_at, cached.ends = requested + lifetime * _FRESH, requested + lifetime
    pending.set_result(token)


def _fetch(config: ClientConfig, sleep: Callable[[float], None]) -> tuple[Secret, float]:
    url = str(config.sasl_oauthbearer_token_endpoint_url)
    end = time.monotonic() + _TIMEOUT_S
    for attempt in range(1, _ATTEMPTS + 1):
        last = attempt == _ATTEMPTS or time.monotonic() > end
        try:
            opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=_context(config)), NoRedirect
            )
            with opener.open(_request(config, url), timeout=_TIMEOUT_S) as response:
                return parse_answer(url, _read(response))
        except urllib.error.HTTPError as error:
            passing = error.code >= 500 or error.code == 429
            if last or not passing:
                kind = ConnectionFailedError if passing else SaslError
                raise kind(
                    f"OAUTHBEARER: {url} answered {error.code}{_reason(error)} ({_client(config)})"
                ) from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or _one_line(str(error)) or type(error).__name__
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise SaslError(f"OAUTHBEARER: no token from {url}: {reason}") from None
            if last:
                raise ConnectionFailedError(f"OAUTHBEARER: no token from {url}: {reason}") from None
        sleep(exponential_backoff(attempt, _PAUSE_S, math.inf))
    raise AssertionError("unreachable")


def read_answer(response: Any, max_bytes: int, timeout_s: float) -> bytes:
    """Returns the whole answer of HTTP, up to `max_bytes`; raises `TimeoutError` where it comes too slowly, `IncompleteRead` where it is cut."""
    end = time.monotonic() + timeout_s
    made = bytearray()
    size = response.headers.get("Content-Length", "")
    while len(made) < max_bytes and (part := response.read1(max_bytes)):
        made += part
        if time.monotonic() > end:
            raise TimeoutError(f"its answer was not whole after {timeout_s:g} s")
    if size.isdecimal() and len(made) < min(int(size), max_bytes):
        raise http.client.IncompleteRead(bytes(made), int(size) - len(made))
    return bytes(made[:max_bytes])


def _read(response: Any) -> bytes:
    return read_answer(response, _MAX_BYTES, _TIMEOUT_S)


def _request(config: ClientConfig, url: str) -> urllib.request.Request:
    """The request of client credentials, authenticated by a signed JWT (RFC 7523, 2.2), or by id and secret."""
    client_id = config.sasl_oauthbearer_client_credentials_client_id
    form = {"grant_type": "client_credentials"}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    assertion = assertion_of(config)
    if assertion is not None:
        form |= {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion.reveal()}
        if client_id:
            form["client_id"] = client_id
    else:
        secret = config.sasl_oauthbearer_client_credentials_client_secret
        assert secret is not None  # the options are checked together
        user = urllib.parse.quote(str(client_id), safe="")
        pair = f"{user}:{urllib.parse.quote(secret.reveal(), safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    if config.sasl_oauthbearer_scope:
        form["scope"] = config.sasl_oauthbearer_scope
    return urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers, method="POST")


def _client(config: ClientConfig) -> str:
    """The client that asked, for an error."""
    if config.sasl_oauthbearer_client_credentials_client_id:
        return f"client id {config.sasl_oauthbearer_client_credentials_client_id}"
    if config.sasl_oauthbearer_assertion_claim_iss:
        return f"assertion of {config.sasl_oauthbearer_assertion_claim_iss}"
    path = config.sasl_oauthbearer_assertion_file or config.sasl_oauthbearer_assertion_template_file
    return f"assertion of {path}"


def _context(config: ClientConfig) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if config.ssl_cafile is not None:
        context.load_verify_locations(config.ssl_cafile)
    return context


def parse_answer(url: str, body: bytes) -> tuple[Secret, float]:
    """Returns the token and its lifetime in seconds, 0 where the answer names none. Raises `SaslError`."""
    try:
        answer: Any = json.loads(body)
        token, expires_in = answer["access_token"], answer.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        token, expires_in = None, None
    if not isinstance(token, str) or not token:
        raise SaslError(f"OAUTHBEARER: the answer of {url} has no access_token")
    return Secret(token), _seconds(expires_in)


def _seconds(expires_in: Any) -> float:
    """The seconds of a lifetime, as a number or as text; 0 for other values."""
    try:
        seconds = float(expires_in)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _reason(error: urllib.error.HTTPError) -> str:
    """The endpoint's own reason, from the fields that RFC 6749 names; nothing else of its answer is shown."""
    try:
        answer: Any = json.loads(_read(error))
        found = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
    except (ValueError, OSError, http.client.HTTPException, AttributeError, TypeError, RecursionError):
        found = []
    return f": {_one_line(': '.join(found))}" if found else f" {_one_line(str(error.reason))}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_SHOWN]
