"""AWS Signature Version 4 in a query ("presigned"), and the two forms in which Amazon MSK takes it.

Theory of operation. A request that nobody sends, `GET https://host/?Action=kafka-cluster:Connect`, is signed with the key of an
identity; the broker computes the same signature. The mechanism AWS_MSK_IAM sends the parts of that query as JSON, signed for the
broker's host name (`aws-msk-iam-auth`, version 2020_10_22). OAUTHBEARER sends the address itself in base64, signed for
`kafka.REGION.amazonaws.com` (`aws-msk-iam-sasl-signer`). The clock is an argument; secrets are revealed where bytes are made of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from kafka_actors.config.security import Secret

__all__ = ["AwsCredentials", "msk_payload", "msk_token", "presigned"]

EXPIRES_S = 900
"""Seconds for which a signature is accepted: the most that MSK allows."""

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "kafka-cluster"
_ACTION = {"Action": "kafka-cluster:Connect"}
_VERSION = "2020_10_22"
_NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """An access key, whose id is no secret, with its secret key; temporary ones have a session token as well."""

    access_key: str
    secret_key: Secret
    session_token: Secret | None = None


def msk_payload(credentials: AwsCredentials, host: str, region: str, now: float, user_agent: str) -> Secret:
    """The message of AWS_MSK_IAM for the broker `host`: JSON, with names in small letters. `now`: seconds since 1970."""
    signed = presigned(credentials, host, "/", _ACTION, region, _SERVICE, now, EXPIRES_S)
    fields = {name.lower(): value for name, value in signed.items()}
    return Secret(json.dumps({"version": _VERSION, "host": host, "user-agent": user_agent, **fields}))


def msk_token(credentials: AwsCredentials, region: str, now: float, user_agent: str) -> Secret:
    """The token that MSK takes for OAUTHBEARER. `now`: seconds since 1970."""
    host = f"kafka.{region}.amazonaws.com"
    signed = presigned(credentials, host, "/", _ACTION, region, _SERVICE, now, EXPIRES_S)
    url = f"https://{host}/?{_query({**signed, 'User-Agent': user_agent})}"
    return Secret(base64.urlsafe_b64encode(url.encode()).decode().rstrip("="))


def presigned(
    credentials: AwsCredentials,
    host: str,
    path: str,
    parameters: Mapping[str, str],
    region: str,
    service: str,
    now: float,
    expires_s: int,
    body_hash: str = _NO_BODY,
) -> dict[str, str]:
    """The parameters of a query for GET, with the signature among them (Signature Version 4, of the header `host` alone)."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    signed = {
        **parameters,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        signed["X-Amz-Security-Token"] = credentials.session_token.reveal()
    request = "\n".join(("GET", quote(path), _query(signed), f"host:{host}", "", "host", body_hash))
    text = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = hmac.new(_key(credentials.secret_key, scope), text.encode(), "sha256").hexdigest()
    return {**signed, "X-Amz-Signature": signature}


def _query(parameters: Mapping[str, str]) -> str:
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parameters.items()
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


def _key(secret: Secret, scope: str) -> bytes:
    key = ("AWS4" + secret.reveal()).encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
