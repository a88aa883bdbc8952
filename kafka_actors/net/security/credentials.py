"""`SaslLogin`: the credentials of a config, as steps of its mechanism. Making them may block: a token or a ticket is fetched."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from kafka_actors.config import ClientConfig, looked_up, references_of
from kafka_actors.config.security import Secret
from kafka_actors.errors import (
    ConfigError,
    ConnectionFailedError,
    KafkaActorsError,
    SaslAuthenticationFailedError,
    SaslError,
)
from kafka_actors.net.machines.sasl import Steps, oauthbearer, plain, scram

from .kerberos import kerberos

ROTATION_S = 300.0
"""Seconds for which a login that was accepted before, and whose name or password is a reference, may be refused while a
new password is rolled out: Kubernetes takes up to two minutes to write a changed Secret to its files."""

_ALGORITHMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
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

    def steps(self, host: str) -> Steps:
        """The steps of the config's mechanism at the broker `host`. Raises `SaslError`, `ConnectionFailedError` where a token or a
        ticket can't be fetched now, `ConfigError` for a reference that leads nowhere."""
        config = self._now = looked_up(self._config)
        mechanism = str(config.sasl_mechanism)
        if mechanism == "OAUTHBEARER":
            self._token, extensions = _token(config)
            return oauthbearer(self._token, extensions)
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


def _token(config: ClientConfig) -> tuple[Secret, dict[str, str]]:
    provider = config.sasl_oauth_token_provider
    if provider is None:
        from .oauth import client_credentials  # loads HTTP, which no other mechanism needs

        return client_credentials(config), {}
    try:
        token = provider.token()
        extensions = dict(provider.extensions()) if hasattr(provider, "extensions") else {}
    except Exception as error:  # the user's code
        kind = (
            ConnectionFailedError if isinstance(error, OSError) else SaslError
        )  # a server that is not reached now may be soon
        raise kind(f"OAUTHBEARER: the token provider failed: {type(error).__name__}: {error}") from error
    if not isinstance(token, str):
        raise SaslError(
            f"OAUTHBEARER: the token provider's token() returned a {type(token).__name__}, not a str"
        )
    return Secret(token), extensions
