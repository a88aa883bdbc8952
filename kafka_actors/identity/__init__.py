"""Identities of clouds: token providers that their own SDKs get credentials for, and signatures of AWS.

`sasl_oauth_token_provider` names one by its import path, such as `kafka_actors.identity:Azure`, and `sasl_identity` has its
arguments. A name travels, an object with credentials doesn't: each process that connects makes its own (`providers.made`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .aws import AwsMsk
    from .azure import Azure
    from .google import Google

_HOMES = {
    "AwsMsk": "aws",
    "Azure": "azure",
    "Google": "google",
}

__all__ = ["AwsMsk", "Azure", "Google"]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
