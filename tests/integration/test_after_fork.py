"""Clients in a fork: they belong to the process that made them; the fork is told so, and the parent goes on."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.testing import FakeKafka

# Python 3.12 and newer warn of any fork in a process with threads: that is what users do, and what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

LIMIT_S = round(slow_s(20))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with FakeKafka(topics={"orders": 1}) as kafka:
        yield kafka.bootstrap_servers


def in_a_fork(call: Callable[[], Any]) -> str:
    """Makes a call in a forked child; returns what that says of it, or nothing where it hangs and is ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        said = "it was done"
        try:
            call()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode()[:1000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_an_admin_is_refused_after_a_fork_and_goes_on_in_its_parent(servers: str) -> None:
    with ka.Admin(bootstrap_servers=servers) as admin:
        assert [topic.name for topic in admin.list_topics()] == ["orders"]
        assert in_a_fork(admin.list_topics).startswith("UsageError: this Admin was made in process")
        assert in_a_fork(admin.close).startswith("UsageError: this Admin was made in process")
        assert [topic.name for topic in admin.list_topics()] == ["orders"]


def test_a_producer_is_refused_after_a_fork_and_goes_on_in_its_parent(servers: str) -> None:
    with ka.Producer(bootstrap_servers=servers) as producer:
        assert producer.send("orders", b"0").result().offset == 0
        for call in (lambda: producer.send("orders", b"1"), producer.flush, producer.close):
            assert in_a_fork(call).startswith("UsageError: this Producer was made in process")
        assert producer.send("orders", b"1").result().offset == 1


def test_handles_are_not_pickled(servers: str) -> None:
    with ka.Admin(bootstrap_servers=servers) as admin, ka.Producer(bootstrap_servers=servers) as producer:
        for handle in (admin, producer):
            with pytest.raises(TypeError, match="can't be pickled, because it holds sockets"):
                pickle.dumps(handle)


def test_a_new_producer_in_a_fork_waits_for_no_thread_that_was_left_behind(servers: str) -> None:
    """Another thread may be settling records of the parent's producer at the moment of the fork."""
    from kafka_actors.producer import futures

    def sends() -> None:
        with ka.Producer(bootstrap_servers=servers) as producer:
            producer.send("orders", b"of the fork").result()

    with futures._LOCK:
        assert in_a_fork(sends) == "it was done"
