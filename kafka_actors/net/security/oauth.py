"""OAuth 2.0's client credentials (RFC 6749, 4.4) over HTTPS: the token of OAUTHBEARER without a provider."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from kafka_actors.config import ClientConfig
from kafka_actors.errors import SaslError
from kafka_actors.security import Secret

_TIMEOUT_S = 10.0
_ATTEMPTS = 4
_PAUSE_S = 0.2
_MAX_BYTES = 1 << 20
_FRESH = 0.8
"""A token is used for this part of its life, so that a session that begins with it is worth its while."""

_lock = threading.Lock()
_tokens: dict[tuple[object, ...], tuple[Secret, float]] = {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A secret is not carried to where an answer points."""

    def redirect_request(self, *_: object) -> None:
        return None


def client_credentials(
    config: ClientConfig,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Secret:
    """A token by the `sasl_oauthbearer_` options, shared by the connections of this process while it is fresh.

    The endpoint's certificate is checked by the system's CAs and those in `ssl_cafile`. Where the endpoint can't be
    reached or fails (5xx, 429), it is asked again, four times in all. Raises `SaslError`.
    """
    key = (
        config.sasl_oauthbearer_token_endpoint_url,
        config.sasl_oauthbearer_client_credentials_client_id,
        config.sasl_oauthbearer_client_credentials_client_secret,
        config.sasl_oauthbearer_scope,
    )
    with _lock:
        token, until = _tokens.get(key, (Secret(""), 0.0))
        if not token or clock() >= until:
            asked = clock()
            token, lifetime = _fetch(config, sleep)
            _tokens[key] = token, asked + lifetime * _FRESH
        return token


def _fetch(config: ClientConfig, sleep: Callable[[float], None]) -> tuple[Secret, float]:
    url = str(config.sasl_oauthbearer_token_endpoint_url)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_context(config)), _NoRedirect)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with opener.open(_request(config, url), timeout=_TIMEOUT_S) as response:
                return _parse(url, response.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            if attempt == _ATTEMPTS or (error.code < 500 and error.code != 429):
                raise SaslError(f"OAUTHBEARER: {url} answered {error.code}{_reason(error)}") from None
        except (OSError, ValueError) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            if attempt == _ATTEMPTS or isinstance(reason, ssl.SSLCertVerificationError):
                raise SaslError(f"OAUTHBEARER: no token from {url}: {reason}") from None
        sleep(_PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")


def _request(config: ClientConfig, url: str) -> urllib.request.Request:
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    assert secret is not None  # the options are checked together
    user = urllib.parse.quote(str(config.sasl_oauthbearer_client_credentials_client_id), safe="")
    pair = f"{user}:{urllib.parse.quote(secret.reveal(), safe='')}"
    form = {"grant_type": "client_credentials"}
    if config.sasl_oauthbearer_scope:
        form["scope"] = config.sasl_oauthbearer_scope
    headers = {
        "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    return urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers, method="POST")


def _context(config: ClientConfig) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if config.ssl_cafile is not None:
        context.load_verify_locations(config.ssl_cafile)
    return context


def _parse(url: str, body: bytes) -> tuple[Secret, float]:
    try:
        answer: Any = json.loads(body)
        token, lifetime = answer["access_token"], float(answer.get("expires_in", 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        token, lifetime = None, 0.0
    if not isinstance(token, str) or not token:
        raise SaslError(f"OAUTHBEARER: the answer of {url} has no access_token")
    return Secret(token), lifetime


def _reason(error: urllib.error.HTTPError) -> str:
    """What the endpoint says of it, by RFC 6749's names; nothing else of its answer."""
    try:
        said: Any = json.loads(error.read(_MAX_BYTES))
        found = [str(said[name]) for name in ("error", "error_description") if said.get(name)]
    except (ValueError, OSError, AttributeError, TypeError):
        found = []
    return f": {': '.join(found)}" if found else f" {error.reason}"
