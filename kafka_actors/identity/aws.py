"""`AwsMsk`: an identity of AWS for Amazon MSK. botocore finds its credentials, and renews those that expire."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, KafkaActorsError, SaslError

from .aws_sigv4 import AwsCredentials, msk_payload, msk_token
from .providers import one_line, sdk, user_agent

__all__ = ["AwsMsk", "region_of"]

_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+){1,3}-\d{1,2}")
_PASSING = (
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "IDPCommunicationError",
)
_SOURCES = (
    "there are no credentials in the environment, the files of ~/.aws, a web identity, or the metadata of the "
    "container or instance"
)


def region_of(host: str) -> str | None:
    """The region in the name of an MSK broker, such as `b-1.orders.abc.c2.kafka.eu-west-1.amazonaws.com`; None without one."""
    return next((label for label in reversed(host.split(".")) if _REGION.fullmatch(label)), None)


class AwsMsk:
    """Signs in at Amazon MSK: by the mechanism AWS_MSK_IAM, and as the token provider of OAUTHBEARER.

    region: of the cluster; without it the one in the broker's host name, then `AWS_REGION` and what botocore is configured with.
    profile_name: of the files in ~/.aws. role_arn: a role to assume with those credentials; role_session_name and
    role_external_id go with it, and sts_region is where it is asked for (default: the cluster's region).
    """

    def __init__(
        self,
        *,
        region: str | None = None,
        profile_name: str | None = None,
        role_arn: str | None = None,
        role_session_name: str = "kafka-actors",
        role_external_id: str | None = None,
        sts_region: str | None = None,
        clock: Callable[[], float] = time.time,  # wall clock: a signature carries the time of day
    ) -> None:
        self._region = region
        self._profile = profile_name
        self._role = role_arn
        self._extra = {"RoleSessionName": role_session_name}
        if role_external_id is not None:
            self._extra["ExternalId"] = role_external_id
        self._sts_region = sts_region
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Any = None
        self._access_key = ""

    def token_for(self, host: str) -> Secret:
        """The token of OAUTHBEARER for a broker of that name. Raises `SaslError`, and `ConnectionFailedError` where AWS can't
        be reached now."""
        region = self._region_for(host)
        return msk_token(self._credentials(region), region, self._clock(), user_agent())

    def payload_for(self, host: str) -> Secret:
        """The message of AWS_MSK_IAM for a broker of that name. Raises as `token_for`."""
        region = self._region_for(host)
        return msk_payload(self._credentials(region), host, region, self._clock(), user_agent())

    def identity(self) -> str:
        """One line for an error: the identity that signs, and what it needs; the id of an access key is no secret."""
        key = f", access key {self._access_key}" if self._access_key else ""
        return (
            f"signed as {self._who()}{key}: its policy has to allow kafka-cluster:Connect on this cluster, and this "
            "machine's clock has to be right"
        )

    def __repr__(self) -> str:
        return f"AwsMsk({self._who()})"

    def _who(self) -> str:
        if self._role is not None:
            return f"role {self._role}"
        return f"profile {self._profile}" if self._profile is not None else "AWS's default identity"

    def _region_for(self, host: str) -> str:
        found = self._region or region_of(host) or os.environ.get("AWS_REGION")
        if not found:
            found = self._configured_region()
        if not found:
            raise SaslError(
                f"AWS: the region of {host} is unknown: give sasl_identity={{'region': …}} or set AWS_REGION"
            )
        return str(found)

    def _configured_region(self) -> Any:
        errors = sdk("botocore.exceptions", "aws")
        try:
            return self._session().get_config_variable("region")
        except (errors.BotoCoreError, OSError) as error:
            raise self._raised(error, errors) from None

    def _session(self) -> Any:
        return sdk("botocore.session", "aws").Session(profile=self._profile)

    def _credentials(self, region: str) -> AwsCredentials:
        errors = sdk("botocore.exceptions", "aws")
        try:
            with self._lock:
                if self._found is None:
                    self._found = self._find(region)
                frozen = self._found.get_frozen_credentials() if self._found is not None else None
        except (errors.BotoCoreError, errors.ClientError, OSError, RuntimeError, ValueError) as error:
            raise self._raised(error, errors) from None
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise SaslError(f"AWS: {self._who()}: {_SOURCES}")
        self._access_key = frozen.access_key
        token = Secret(frozen.token) if frozen.token else None
        return AwsCredentials(frozen.access_key, Secret(frozen.secret_key), token)

    def _find(self, region: str) -> Any:
        session = self._session()
        found = session.get_credentials()
        if found is None or self._role is None:
            return found
        library = sdk("botocore.credentials", "aws")

        def client(service: str, **options: Any) -> Any:
            return session.create_client(service, region_name=self._sts_region or region, **options)

        fetcher = library.AssumeRoleCredentialFetcher(client, found, self._role, extra_args=self._extra)
        return library.DeferredRefreshableCredentials(
            method="assume-role", refresh_using=fetcher.fetch_credentials
        )

    def _raised(self, error: BaseException, errors: Any) -> KafkaActorsError:
        passing = isinstance(
            error,
            (
                errors.HTTPClientError,
                errors.ConnectionError,
                errors.MetadataRetrievalError,
                errors.CredentialRetrievalError,
                OSError,
                RuntimeError,  # the credentials that a source gave were expired already
            ),
        )
        if isinstance(error, errors.ClientError):
            response: Any = getattr(error, "response", {})
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            passing = status >= 500 or response.get("Error", {}).get("Code") in _PASSING
        return (ConnectionFailedError if passing else SaslError)(f"AWS: {self._who()}: {one_line(error)}")
