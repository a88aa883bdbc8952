"""Waiting for a client that begins: its end may come in the very moment at which the time for it is over."""

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from kafka_actors import AsyncProducer, Consumer, Producer
from kafka_actors.consumer.waiting import CallLimit
from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.net import IoThread
from kafka_actors.producer import async_producer, producer

NOBODY = "127.0.0.1:1"


class EndsWithItsTime(Future):
    """Done between the end of the time and the look at it."""

    def _as_time_ends(self, timeout):
        if timeout is not None:
            self.set_result("done")
            raise TimeoutError

    def result(self, timeout=None):
        self._as_time_ends(timeout)
        return super().result()

    def exception(self, timeout=None):
        self._as_time_ends(timeout)
        return super().exception()


class Refused(Exception):
    """Why the beginning failed."""


async def never():
    await asyncio.Event().wait()


async def refuse():
    raise Refused


@pytest.fixture
def io():
    io = IoThread("test")
    yield io
    io.stop()


def test_a_consumer_that_begins_as_its_time_ends_has_begun(monkeypatch):
    consumer = Consumer(["t"], group_id="g", bootstrap_servers=NOBODY)
    monkeypatch.setattr(consumer._session, "begin", lambda: SimpleNamespace(done=EndsWithItsTime()))
    consumer._run(consumer._session.connect(CallLimit(10)))
    assert consumer._session.ready
    consumer._session.ready = False


def test_a_consumers_call_that_ends_as_its_time_does_has_its_result(monkeypatch):
    consumer = Consumer(["t"], group_id="g", bootstrap_servers=NOBODY)
    io = SimpleNamespace(submit=lambda work: work.close() or EndsWithItsTime())
    monkeypatch.setattr(consumer._session, "_io", io)

    async def work():
        """Nothing."""

    assert consumer._call(work(), CallLimit(10)) == "done"


def test_a_producer_that_begins_as_its_time_ends_has_begun(monkeypatch):
    made = Producer(bootstrap_servers=NOBODY, max_block_ms=10)
    monkeypatch.setattr(made, "_begin", EndsWithItsTime)
    assert made._started() is not None


def test_a_producers_call_without_an_answer_says_what_was_asked(monkeypatch, io):
    made = Producer(bootstrap_servers=NOBODY)
    made._io = io
    with pytest.raises(KafkaTimeoutError, match=r"the partitions of t: no answer within 0\.01 s"):
        made._call(never(), "the partitions of t", 0.01)


def test_a_producer_whose_connections_do_not_close_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(producer, "GRACE_S", 0.05)
    made = Producer(bootstrap_servers=NOBODY)
    monkeypatch.setattr(made._core, "begin", refuse)
    monkeypatch.setattr(made._core.client, "close", never)
    raised = []

    def start():
        with pytest.raises(Refused):
            made._started()
        raised.append(True)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(20)
    assert raised
    assert "could not be closed in 0.05 s" in caplog.text
    made.close()


def test_an_async_producer_whose_connections_do_not_close_is_given_up(monkeypatch, caplog):
    async def main():
        monkeypatch.setattr(async_producer, "GRACE_S", 0.05)
        made = AsyncProducer(bootstrap_servers=NOBODY)
        monkeypatch.setattr(made._core, "begin", refuse)
        monkeypatch.setattr(made._core.client, "close", never)
        with pytest.raises(Refused):
            await made._started()
        await made.close()

    asyncio.run(main())
    assert "could not be closed in 0.05 s" in caplog.text
