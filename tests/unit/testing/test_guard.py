"""The guard of tests/unit/conftest.py holds: without it, slow and flaky tests creep in among the fast ones."""

import asyncio
import socket
import sys
import time
from pathlib import Path

import pytest


def test_a_unit_test_cannot_connect() -> None:
    with socket.socket() as some, pytest.raises(AssertionError, match=r"socket\.connect"):
        some.connect(("127.0.0.1", 9))


def test_a_unit_test_cannot_connect_through_asyncio() -> None:
    with pytest.raises(AssertionError, match="may not"):
        asyncio.run(asyncio.open_connection("127.0.0.1", 9))  # type: ignore[arg-type]


def test_a_unit_test_cannot_listen() -> None:
    with pytest.raises(AssertionError, match=r"socket\.bind"):
        socket.create_server(("127.0.0.1", 0))


def test_a_unit_test_cannot_sleep() -> None:
    with pytest.raises(AssertionError, match="sleep"):
        time.sleep(0.001)


def test_a_unit_test_cannot_sleep_in_asyncio_but_may_yield() -> None:
    asyncio.run(asyncio.sleep(0))
    with pytest.raises(AssertionError, match="inject a clock"):
        asyncio.run(asyncio.sleep(0.001))


def test_a_unit_test_cannot_start_ray(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pytest of its own, with a module called ray that is there before the test, as an import above would do."""
    guard = Path(__file__).parents[1] / "conftest.py"
    pytester.makeconftest(guard.read_text())
    pytester.makepyfile(ray="def init(): pass", test_it="import ray\ndef test_it(): ray.init()")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:rerunfailures")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*may not call ray.init*"])
