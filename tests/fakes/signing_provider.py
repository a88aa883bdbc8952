"""A token provider to be named by its import path; it imports nothing of the tests, so that actors of Ray and tasks of Spark can make it."""

from __future__ import annotations

import os
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
    """Signs for itself with the key in a file. Each process that makes one leaves a file of its id in the directory `made_in`."""

    def __init__(self, *, key_file: str, subject: str, made_in: str | None = None) -> None:
        self._key = Path(key_file).read_text()
        self._subject = subject
        if made_in is not None:
            Path(made_in, str(os.getpid())).touch()

    def token(self) -> str:
        return signed(self._key, sub=self._subject)
