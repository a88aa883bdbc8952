"""`Admin`: that each call is that of `AsyncAdmin`, and what a closed, forked or interrupted one does."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_actors import Admin, AsyncAdmin
from kafka_actors.base import fork_guard
from kafka_actors.errors import ConfigError, TopicAlreadyExistsError, UsageError

CALLS = sorted(
    name
    for name, call in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
    if not name.startswith("_") and name != "close"
)
"""Names of the calls that ask brokers."""


class Requests:
    """In place of an `AsyncAdmin`: notes calls with their arguments, and answers `answer`, or raises it."""

    def __init__(self) -> None:
        self.config = AsyncAdmin(bootstrap_servers="a:1").config
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.threads: set[str] = set()
        self.answer: Any = None
        self.closed = 0

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            bound = inspect.signature(getattr(AsyncAdmin, name)).bind(self, *args, **named)
            arguments = {k: v for k, v in bound.arguments.items() if k != "self"}
            self.calls.append((name, arguments))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def admin(requests: Requests) -> Iterator[Admin]:
    made = Admin(bootstrap_servers="a:1")
    made._admin = requests  # type: ignore[assignment]
    yield made
    made.close()


def test_there_is_a_blocking_form_of_every_call_with_the_same_parameters() -> None:
    assert len(CALLS) > 15
    for name in CALLS:
        blocking = getattr(Admin, name)
        assert inspect.signature(blocking) == inspect.signature(getattr(AsyncAdmin, name)), name
        assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_reaches_the_parameter_of_its_name_and_the_answer_comes_back(
    admin: Admin, requests: Requests, name: str
) -> None:
    parameters = list(inspect.signature(getattr(Admin, name)).parameters.values())[1:]
    sent = {p.name: object() for p in parameters}
    requests.answer = object()
    positional = [sent[p.name] for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: sent[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    answer = getattr(admin, name)(*positional, **named)
    assert requests.calls == [(name, sent)]
    returns_nothing = inspect.signature(getattr(Admin, name)).return_annotation == "None"
    assert answer is (None if returns_nothing else requests.answer)


def test_errors_are_raised_as_they_are_and_the_next_call_goes_on(admin: Admin, requests: Requests) -> None:
    requests.answer = TopicAlreadyExistsError(topic="orders")
    with pytest.raises(TopicAlreadyExistsError, match="orders"):
        admin.list_topics()
    requests.answer = []
    assert admin.list_topics() == []
    assert requests.threads == {"kafka-admin"}


def test_a_closed_admin_refuses_calls_and_leaves_no_coroutine_behind(requests: Requests) -> None:
    with Admin(bootstrap_servers="a:1") as admin:
        admin._admin = requests  # type: ignore[assignment]
    admin.close()
    assert requests.closed == 1
    gc.collect()  # what tests before have left
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(UsageError, match="this Admin is closed"):
            admin.list_topics()
        gc.collect()
    assert [str(w.message) for w in warned] == []
    assert requests.calls == []


def test_a_forked_child_can_neither_ask_nor_close(
    admin: Admin, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as child:
        child.setattr(fork_guard, "_forks", fork_guard._forks + 1)
        for call in (admin.list_topics, admin.close):
            with pytest.raises(UsageError, match="this Admin was made in process"):
                call()
    assert (requests.calls, requests.closed) == ([], 0)


def test_the_thread_ends_also_where_closing_fails(admin: Admin, requests: Requests) -> None:
    async def fail() -> None:
        raise OSError("reset by peer")

    requests.close = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="reset by peer"):
        admin.close()
    assert not admin._io.alive
    admin.close()


def test_an_interrupt_ends_the_call_that_is_waited_for(
    admin: Admin, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    submit = admin._io.submit

    def interrupted(work: Any) -> Any:
        future = submit(work)

        def result() -> None:
            assert begun.wait(10)
            raise KeyboardInterrupt

        future.result = result
        return future

    requests.__dict__["list_topics"] = lambda **_: endless()
    with monkeypatch.context() as patch:
        patch.setattr(admin._io, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            admin.list_topics()
    assert cancelled.wait(10)


@pytest.mark.parametrize("call", ["list_topics", "close"])
@pytest.mark.parametrize("when", ["it waits", "it begins"])
def test_a_call_ends_where_another_thread_closes_the_admin(
    requests: Requests, monkeypatch: pytest.MonkeyPatch, call: str, when: str
) -> None:
    admin = Admin(bootstrap_servers="a:1")
    begun = threading.Event()

    async def endless(**_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    requests.__dict__[call] = endless
    admin._admin = requests  # type: ignore[assignment]
    submit = admin._io.submit

    def stopped_beside(work: Any) -> Any:
        if when == "it begins":
            admin._io.stop()
        future = submit(work)
        assert begun.wait(10)
        admin._io.stop()
        return future

    monkeypatch.setattr(admin._io, "submit", stopped_beside)
    if call == "close":
        admin.close()
    else:
        with pytest.raises(UsageError, match="this Admin is closed"):
            admin.list_topics()
    assert not admin._io.alive


def test_a_wrong_option_starts_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError, match="bootstrap_server"):
        Admin(bootstrap_serverz="a:1")  # type: ignore[call-arg]
    assert threading.active_count() <= before


def test_a_name_of_another_client_is_answered_with_the_name_here(admin: Admin) -> None:
    with pytest.raises(AttributeError, match=r"Admin has no list_consumer_groups\(\): list_groups\(\)"):
        admin.list_consumer_groups  # type: ignore[attr-defined]  # noqa: B018
    assert repr(admin) == "<Admin of a:1>"
