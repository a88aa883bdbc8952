"""What is said of a user in each mechanism. Making it may block: a token is fetched, a ticket asked for."""

from __future__ import annotations

import secrets

from kafka_actors.config import ClientConfig
from kafka_actors.errors import SaslError
from kafka_actors.net.machines.sasl import oauthbearer, plain
from kafka_actors.net.machines.scram import Steps, scram
from kafka_actors.security import Secret

from .kerberos import kerberos

_ALGORITHMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def login(config: ClientConfig, host: str) -> Steps:
    """The steps of the config's mechanism at a broker of that name. Raises `SaslError`."""
    mechanism = str(config.sasl_mechanism)
    if mechanism == "OAUTHBEARER":
        return oauthbearer(*_token(config))
    if mechanism == "GSSAPI":
        return kerberos(config, host)
    assert config.sasl_plain_password is not None  # the options are checked together
    username, password = str(config.sasl_plain_username), config.sasl_plain_password
    if mechanism == "PLAIN":
        return plain(username, password)
    return scram(_ALGORITHMS[mechanism], username, password, secrets.token_urlsafe(24))


def _token(config: ClientConfig) -> tuple[Secret, dict[str, str]]:
    provider = config.sasl_oauth_token_provider
    if provider is None:
        from .oauth import client_credentials  # and with it HTTP, which nobody else here needs

        return client_credentials(config), {}
    try:
        token = provider.token()
        extensions = dict(provider.extensions()) if hasattr(provider, "extensions") else {}
    except Exception as error:  # the user's code
        raise SaslError(f"OAUTHBEARER: the token provider failed: {type(error).__name__}: {error}") from error
    if not isinstance(token, str):
        raise SaslError(
            f"OAUTHBEARER: the token provider's token() returned a {type(token).__name__}, not a str"
        )
    return Secret(token), extensions
