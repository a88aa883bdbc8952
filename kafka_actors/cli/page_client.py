"""Asks a job's status page for what it shows."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import urljoin

import msgspec

from kafka_actors.base import decoders
from kafka_actors.errors import DisconnectedError, KafkaTimeoutError, UsageError
from kafka_actors.status_page.document import Document

__all__ = ["PageClient", "is_url"]

TIMEOUT_S = 5.0
MOST_BYTES = 256 * 1024 * 1024
REMEDY = "a job has a status page with --status or status_address, for as long as it runs"

_ADDRESS = re.compile(r"([^\s/:]*|\[[0-9A-Fa-f:.]+\]):[0-9]+/?")


def is_url(text: str) -> bool:
    """Whether it is an address, `http://host:8000`, `host:8000` or `:8000`, and not the name of a job."""
    return "://" in text or _ADDRESS.fullmatch(text) is not None


class PageClient:
    """A status page by its address. Raises `UsageError` for one that can't be."""

    def __init__(self, address: str) -> None:
        whole = (
            address
            if "://" in address
            else f"http://{'localhost' if address.startswith(':') else ''}{address}"
        )
        if not whole.startswith(("http://", "https://")):
            raise UsageError(f"{address!r} is no status page's address: give http://host:port")
        self._url = urljoin(whole if whole.endswith("/") else whole + "/", "status.json")
        # A proxy of the environment is for the world outside.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def document(self) -> Document:
        """Raises `DisconnectedError` where there is no answer, `KafkaTimeoutError` where none came in time, and `UsageError` where
        somebody else answers."""
        try:
            with self._opener.open(self._url, timeout=TIMEOUT_S) as answer:
                body = answer.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it begins just now, or has more clients than it wants
                raise KafkaTimeoutError(
                    f"{self._url}: {error.read(200).decode(errors='replace').strip()}"
                ) from None
            raise UsageError(f"{self._url} is no status page of a job: {error}") from None
        except TimeoutError:
            raise KafkaTimeoutError(f"{self._url}: no answer within {TIMEOUT_S:g} s") from None
        except urllib.error.URLError as error:
            raise DisconnectedError(f"{self._url}: {error.reason}; {REMEDY}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise DisconnectedError(f"{self._url}: {error or type(error).__name__}") from None
        try:
            return decoders.json(Document).decode(body)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{self._url} is no status page of a job: {error}") from None
