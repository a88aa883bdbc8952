"""`SaslLogin`: the credentials of a config, as steps of its mechanism. Making them may block: a token or a ticket is fetched."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka_actors.base.callables import type_and_text
from kafka_actors.config import ClientConfig, looked_up, references_of
from kafka_actors.config.security import Secret
from kafka_actors.errors import (
    ConfigError,
    ConnectionFailedError,
    KafkaActorsError,
    SaslAuthenticationFailedError,
    SaslError,
    kind_of,
)
from kafka_actors.net.machines.sasl import Steps, aws_msk_iam, oauthbearer, plain, scram

from .kerberos import kerberos

ROTATION_S = 300.0
"""Seconds for which a login that was accepted before, and whose name or password is a reference, may be refused while a
new password is rolled out: Kubernetes takes up to two minutes to write a changed Secret to its files."""

_ALGORITHMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_AWS_MSK = "kafka_actors.identity:AwsMsk"
_REFUSALS = (SaslAuthenticationFailedError, SaslError, ConfigError)

_lock = threading.Lock()
_accepted: dict[object, float | None] = {}
"""The logins with references that were accepted in this process, each with the time of its first refusal since, or None."""


class SaslLogin:
    """The login of one authentication by the `sasl_` options of a config. References in them are looked up anew each time."""

    def __init__(self, config: ClientConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._began = clock()
        references = references_of(config)
        self._key = (tuple(config.bootstrap_servers), *references.items()) if references else None
        self._now: ClientConfig | None = None
        self._token: Secret | None = None
        self._identity: Callable[[], str] | None = None

    def steps(self, host: str) -> Steps:
        """The steps of the config's mechanism at the broker `host`. Raises `SaslError`, `ConnectionFailedError` where a token or a
        ticket can't be fetched now, `ConfigError` for a reference that leads nowhere."""
        config = self._now = looked_up(self._config)
        mechanism = str(config.sasl_mechanism)
        if mechanism == "OAUTHBEARER":
            provider = _provider(config)
            token, extensions = _token(config, provider, host)
            self._token, self._identity = token, lambda: _identity_of(provider, token)
            return oauthbearer(token, extensions)
        if mechanism == "AWS_MSK_IAM":
            signer = _made(_AWS_MSK, config)
            self._identity = signer.identity
            return aws_msk_iam(signer.payload_for(host))
        if mechanism == "GSSAPI":
            return kerberos(config, host)
        assert config.sasl_plain_password is not None  # the options are checked together
        username, password = str(config.sasl_plain_username), config.sasl_plain_password
        if mechanism == "PLAIN":
            return plain(username, password)
        return scram(_ALGORITHMS[mechanism], username, password, secrets.token_urlsafe(24))

    def accepted(self) -> None:
        """Notes that the broker has accepted it."""
        if self._key is not None:
            with _lock:
                _accepted[self._key] = None

    def error_of(self, error: KafkaActorsError) -> KafkaActorsError:
        """The error to raise for a login that failed with `error`: a `ConnectionFailedError`, which is retriable, where another
        try may send something else, because a cached token is dropped, or a reference leads to another text, now or soon."""
        if not isinstance(error, _REFUSALS):
            return error
        if self._drops_token() or self._has_changed() or self._may_change():
            return ConnectionFailedError(f"{error}; it is looked up again for the next try")
        if isinstance(error, SaslAuthenticationFailedError) and self._identity is not None:
            return SaslAuthenticationFailedError(
                f"{error.message}; {self._identity()}", request=error.request
            )
        return error

    def _drops_token(self) -> bool:
        if self._token is None or self._now is None or self._now.sasl_oauth_token_provider is not None:
            return False
        from .oauth import forget

        return forget(self._now, self._token, self._began)

    def _has_changed(self) -> bool:
        try:
            return self._now is not None and looked_up(self._config) != self._now
        except ConfigError:
            return False

    def _may_change(self) -> bool:
        now = self._clock()
        with _lock:
            if self._key is None or self._key not in _accepted:
                return False
            since = _accepted[self._key]
            if since is None:
                since = _accepted[self._key] = now
            return now < since + ROTATION_S


def _made(path: str, config: ClientConfig) -> Any:
    from kafka_actors.identity.providers import made

    return made(path, config.sasl_identity)


def _provider(config: ClientConfig) -> Any:
    """The token provider, made here if it is named by its import path; None without one."""
    provider = config.sasl_oauth_token_provider
    return _made(provider, config) if isinstance(provider, str) else provider


def _token(config: ClientConfig, provider: Any, host: str) -> tuple[Secret, dict[str, str]]:
    if provider is None:
        from .oauth import client_credentials  # loads HTTP, which no other mechanism needs

        return client_credentials(config), {}
    try:
        token = provider.token_for(host) if hasattr(provider, "token_for") else provider.token()
        extensions = dict(provider.extensions()) if hasattr(provider, "extensions") else {}
    except KafkaActorsError:
        raise
    except Exception as error:  # the user's code
        # A server that is not reached now may be soon.
        kind = ConnectionFailedError if isinstance(error, OSError) else SaslError
        raise kind(f"OAUTHBEARER: the token provider failed: {type_and_text(error)}") from error
    if isinstance(token, Secret):
        return token, extensions
    if not isinstance(token, str):
        raise SaslError(f"OAUTHBEARER: the token provider's token() returned {kind_of(token)}, not a str")
    return Secret(token), extensions


def _identity_of(provider: Any, token: Secret) -> str:
    """One line for an error: the provider's `identity()` where it has that method, else the token's claims."""
    try:
        identity = getattr(provider, "identity", None)
        if callable(identity):
            return str(identity())
    except Exception:  # the user's code: the broker's refusal is the error to raise
        pass
    return claims_of(token)


def claims_of(token: Secret) -> str:
    """One line for an error: the claims of a JWT that say whose it is; nothing that would be accepted by anybody is in it."""
    try:
        part = token.reveal().split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        found = [
            f"{name} {str(claims[name])[:100]!r}"
            for name in ("sub", "azp", "appid", "iss", "aud", "exp")
            if name in claims
        ]
    except (IndexError, ValueError, TypeError, RecursionError):
        return "the token is no JWT: does the broker accept that kind?"
    return (
        f"the token has {', '.join(found) or 'no claims that say whose it is'}: the broker has to accept that issuer and "
        "audience, and its time"
    )
