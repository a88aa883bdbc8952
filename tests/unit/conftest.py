"""Unit tests do no IO and never wait: what would open a connection, sleep or start Ray raises instead."""

import asyncio
import socket
import sys
import time
from typing import Any, NoReturn

import pytest


class NotInUnitTests(AssertionError):
    """A unit test reached for the outside: pass time in, inject a fake, or move it to tests/integration."""


def _forbidden(what: str) -> Any:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotInUnitTests(f"a unit test may not {what}; tests/integration is the place for that")

    return refuse


_real_sleep = asyncio.sleep


async def _yield_only(delay: float, result: Any = None) -> Any:
    """`asyncio.sleep(0)` hands control over and is no waiting."""
    if delay > 0:
        raise NotInUnitTests(f"a unit test may not sleep ({delay} s); inject a clock")
    return await _real_sleep(0, result)


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sockets may exist (an event loop wakes itself through a pair of them), but go nowhere.
    for method in ("connect", "connect_ex", "bind", "listen", "sendto"):
        monkeypatch.setattr(socket.socket, method, _forbidden(f"call socket.{method}"))
    monkeypatch.setattr(socket, "getaddrinfo", _forbidden("resolve a host name"))
    monkeypatch.setattr(time, "sleep", _forbidden("call time.sleep"))
    monkeypatch.setattr(asyncio, "sleep", _yield_only)
    if (ray := sys.modules.get("ray")) is not None:
        monkeypatch.setattr(ray, "init", _forbidden("call ray.init"))
