"""Closing ends, whatever hangs."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest
from waiting import slow_s, within

from kafka_actors import Admin, AsyncConsumer, Consumer
from kafka_actors.base.io_thread import IoThread
from kafka_actors.consumer import consumer_session as session_module
from kafka_actors.errors import ConfigError, UsageError


class HangingCore:
    """Never ends its close, and doesn't let itself be cancelled either."""

    auto_commits = False
    fetcher = SimpleNamespace(partitions=frozenset())
    rebalances = SimpleNamespace(next=lambda: None)

    async def close(self, offsets, timeout_s):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass


@pytest.fixture
def hanging(monkeypatch):
    monkeypatch.setattr(session_module, "GRACE_S", 0.2)

    def make(kind):
        made = kind("t", group_id="g")
        made._session._io = IoThread("hanging")
        made._session._core = HangingCore()
        return made

    return make


def test_close_gives_up_after_its_timeout(hanging, caplog):
    consumer = hanging(Consumer)
    with within(5):
        consumer.close(timeout_ms=100)
    assert "could not be closed in 0.1 s" in caplog.text
    with pytest.raises(UsageError, match="is closed"):
        consumer.poll_batch()
    consumer.close()


def test_close_of_the_async_twin_gives_up_after_its_timeout(hanging, caplog):
    async def test() -> None:
        consumer = hanging(AsyncConsumer)
        async with asyncio.timeout(slow_s(5)):
            await consumer.close(timeout_ms=100)
        with pytest.raises(UsageError, match="is closed"):
            await consumer.poll_batch()

    asyncio.run(test())
    assert "could not be closed in 0.1 s" in caplog.text


def test_two_threads_that_use_a_new_consumer_at_once_begin_one(monkeypatch):
    """A second group member would be nobody's: it would keep its partitions, and no close would end it."""
    made = []

    class SlowCore(HangingCore):
        observer = None

        def __init__(self, *_, **__):
            made.append(self)
            with suppress(threading.BrokenBarrierError):  # the other one waits where it should
                both_here.wait(0.2)

        async def begin(self):
            pass

    monkeypatch.setattr(session_module, "ConsumerIO", SlowCore)
    monkeypatch.setattr(session_module, "Delivery", lambda *_: None)
    both_here = threading.Barrier(2)
    session = Consumer("t", group_id="g")._session
    with ThreadPoolExecutor() as pool:
        begun = [pool.submit(session.begin) for _ in range(2)]
        one, other = (each.result(slow_s(5)) for each in begun)
    assert one is other
    assert len(made) == 1
    session.undo()


def test_close_takes_a_timeout_only():
    with pytest.raises(UsageError, match="accepts milliseconds"):
        Consumer(group_id="g").close(timeout_ms="soon")


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_consumer_that_nobody_closed_is_warned_of_as_files_are(kind):
    consumer = kind("t", group_id="g", bootstrap_servers="a:1")
    session = consumer._session  # the IO thread has it, as long as it runs
    session._core = HangingCore()
    with pytest.warns(ResourceWarning, match=f"<{kind.__name__} group='g' of a:1> was never closed"):
        del consumer


def test_an_admin_that_nobody_closed_is_warned_of_as_files_are():
    admin = Admin(bootstrap_servers="a:1")
    io = admin._io
    with pytest.warns(ResourceWarning, match="<Admin of a:1> was never closed"):
        del admin
    assert io.stop()


def test_what_was_closed_or_never_began_is_not_warned_of(recwarn):
    gc.collect()  # what tests before have left
    recwarn.clear()
    with Admin(bootstrap_servers="a:1"):
        pass
    for kind in (Consumer, AsyncConsumer):
        kind("t", group_id="g")
        with pytest.raises(ConfigError):
            kind("t", grup="g")
    gc.collect()
    assert not [w for w in recwarn if w.category is ResourceWarning]
