"""`Google`: an identity of Google Cloud for Managed Service for Apache Kafka. google-auth gets its tokens and renews them."""

from __future__ import annotations

import base64
import calendar
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, SaslError

from .providers import one_line, sdk

__all__ = ["Google", "kafka_token"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def kafka_token(access_token: Secret, email: str, issued_s: float, expires_s: float) -> Secret:
    """The token that Google's brokers take: a JWT with the account in its payload and the access token in its signature's place.

    Times are seconds since 1970. The format is that of `GcpLoginCallbackHandler` and Google's local credentials server.
    """
    payload = {
        "exp": int(expires_s),
        "iat": int(issued_s),
        "iss": "Google",
        "scope": "kafka",
        "sub": email,
    }
    parts = _json({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), _json(payload), access_token.reveal().encode()
    return Secret(".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts))


class Google:
    """Gets tokens with Google's Application Default Credentials: a service account's key, a workload identity or its federation,
    the metadata server, or whoever has logged in with gcloud.

    email: of the account, where the credentials don't tell it.
    """

    def __init__(
        self,
        *,
        email: str | None = None,
        clock: Callable[[], float] = time.time,  # wall clock: a token carries the time of day
    ) -> None:
        self._email = email
        self._clock = clock
        self._lock = threading.Lock()
        self._credentials: Any = None

    def token_for(self, host: str) -> Secret:
        """A token for a broker of that name. Raises `SaslError`, and `ConnectionFailedError` where Google can't be reached now."""
        errors = sdk("google.auth.exceptions", "gcp")
        transport = sdk("google.auth.transport.requests", "gcp")
        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials, _ = sdk("google.auth", "gcp").default(scopes=[_SCOPE])
                found = self._credentials
                if not found.valid:
                    found.refresh(transport.Request())
                token, expiry = Secret(found.token), found.expiry
        except errors.GoogleAuthError as error:
            passing = isinstance(error, (errors.TransportError, errors.TimeoutError)) or error.retryable
            kind = ConnectionFailedError if passing else SaslError
            raise kind(f"Google: {self._who()}: {one_line(error)}") from None
        email = self._email_of(found)
        now = self._clock()
        return kafka_token(token, email, now, calendar.timegm(expiry.timetuple()) if expiry else now + 3600)

    def identity(self) -> str:
        """One line for an error: the identity that asks, and what it needs."""
        return (
            f"Google's token of {self._who()}: it needs roles/managedkafka.client in the cluster's project, and "
            "the right ACLs"
        )

    def __repr__(self) -> str:
        return f"Google({self._who()})"

    def _who(self) -> str:
        return self._email or "the application default credentials"

    def _email_of(self, found: Any) -> str:
        if self._email is None:
            known = (getattr(found, name, None) for name in ("service_account_email", "account"))
            self._email = next((email for email in known if email and "@" in email), None)
        if self._email is None:
            raise SaslError(
                f"Google: {type(found).__name__} does not tell whose they are: give the account, "
                "sasl_identity={'email': …}"
            )
        return self._email


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
