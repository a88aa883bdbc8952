"""`Azure`: an identity of Microsoft Entra for Event Hubs and other brokers. azure-identity gets its tokens and keeps them."""

from __future__ import annotations

import threading
from typing import Any

from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, SaslError

from .providers import one_line, sdk

__all__ = ["Azure", "scope_of"]

_NEEDS = "it needs a role there, such as Azure Event Hubs Data Receiver or Data Sender"


def scope_of(host: str) -> str | None:
    """The scope of an Event Hubs namespace: `https://HOST/.default`. None for a host that is none."""
    return f"https://{host}/.default" if ".servicebus." in host else None


class Azure:
    """Gets tokens as azure-identity's `DefaultAzureCredential` does: of a service principal in `AZURE_…` variables, a workload
    identity of Kubernetes, a managed identity, or whoever has logged in with Azure's command line.

    client_id: of a managed or workload identity, where there are several. scope: the token's (default: that of the Event Hubs
    namespace in the broker's name); brokers of another kind need one, such as `api://orders-kafka/.default`.
    """

    def __init__(self, *, client_id: str | None = None, scope: str | None = None) -> None:
        self._client_id = client_id
        self._scope = scope
        self._lock = threading.Lock()
        self._credential: Any = None
        self._gave = False

    def token_for(self, host: str) -> Secret:
        """A token for a broker of that name. Raises `SaslError`, and `ConnectionFailedError` where Azure can't be reached now."""
        scope = self._scope or scope_of(host)
        if scope is None:
            raise SaslError(
                f"Azure: {host} is no namespace of Event Hubs: give its scope, sasl_identity={{'scope': 'api://…/.default'}}"
            )
        errors = sdk("azure.core.exceptions", "azure")
        library = sdk("azure.identity", "azure")
        try:
            with self._lock:
                if self._credential is None:
                    named = {} if self._client_id is None else {"managed_identity_client_id": self._client_id}
                    self._credential = library.DefaultAzureCredential(**named)
                token = Secret(self._credential.get_token(scope).token)
        except (errors.AzureError, ValueError, OSError) as error:
            unavailable = isinstance(error, library.CredentialUnavailableError)
            status = getattr(error, "status_code", None) or 0
            passing = isinstance(error, (errors.ServiceRequestError, errors.ServiceResponseError, OSError))
            passing = passing or status >= 500 or status == 429 or (unavailable and self._gave)
            kind = ConnectionFailedError if passing else SaslError
            raise kind(f"Azure: {self._who()}, scope {scope}: {one_line(error)}") from None
        self._gave = True
        return token

    def identity(self) -> str:
        """One line for an error: the identity that asks, and what it needs."""
        return f"Azure's token of {self._who()}: {_NEEDS}"

    def __repr__(self) -> str:
        return f"Azure({self._who()})"

    def _who(self) -> str:
        return f"client id {self._client_id}" if self._client_id is not None else "the default identity"
