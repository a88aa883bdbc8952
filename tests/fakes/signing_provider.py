"""A token provider to be named by its import path; it imports nothing of the tests, so that actors of Ray can make it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt

ISSUER, AUDIENCE = "https://idp.example.org", "kafka"
KEY_ID = "k1"


def signed(key: Any, seconds: float = 300.0, **claims: Any) -> str:
    """A token with a signature, valid for so many seconds from now."""
    now = time.time()
    payload = {"iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": int(now + seconds), **claims}
    return jwt.encode(payload, key, "RS256", {"kid": KEY_ID})


class SignedTokens:
    """Signs for itself with the key in a file."""

    def __init__(self, *, key_file: str, subject: str) -> None:
        self._key = Path(key_file).read_text()
        self._subject = subject

    def token(self) -> str:
        return signed(self._key, sub=self._subject)
