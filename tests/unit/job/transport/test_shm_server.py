"""The connection actor's side of the shared-memory transport on pairs of sockets: whose pulls it carries out, and what it keeps of workers."""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.errors import DisconnectedError, NodeNotReadyError
from kafka_actors.fetch.messages import FetchedPartition, FetchReply, Pull
from kafka_actors.job.messages import CallInHand, CrashReport
from kafka_actors.job.transport import shm_server
from kafka_actors.job.transport.shared_memory import SharedMemory
from kafka_actors.job.transport.shm_client import SharedMemoryClient, send
from kafka_actors.job.transport.shm_server import SharedMemoryServer
from kafka_actors.job.worker.call_record import CallRecord
from kafka_actors.types import TopicPartition

SOON_S = 30


class Target:
    """Carries out the pulls of one worker: hands them to the test."""

    def __init__(self, memory: SharedMemory) -> None:
        self.pulls: queue.Queue[tuple[Pull, Callable[[Any], None]]] = queue.Queue()
        self.was_shut = threading.Event()

    def fetch(self, pull: Pull, answered: Callable[[Any], None]) -> None:
        self.pulls.put((pull, answered))

    def shut(self) -> None:
        self.was_shut.set()


class Server:
    """A server that has accepted workers over pairs of sockets."""

    def __init__(self) -> None:
        self.targets: list[Target] = []
        self.server = SharedMemoryServer(self._target)

    def _target(self, memory: SharedMemory) -> Target:
        self.targets.append(Target(memory))
        return self.targets[-1]

    def accept(self) -> socket.socket:
        """The worker's end of a connection that was accepted."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server._accept(theirs)
        return ours

    def worker(self, name: str, record: CallRecord | None = None) -> SharedMemoryClient:
        ours = self.accept()
        send(ours, name.encode(), descriptors=[] if record is None else [record.descriptor])
        return SharedMemoryClient(ours)


def pulled(client: SharedMemoryClient, sequence: int) -> queue.Queue[Any]:
    """Where the outcome of a pull arrives."""
    outcomes: queue.Queue[Any] = queue.Queue()
    client.fetch(Pull(sequence), outcomes.put)
    return outcomes


def test_a_pull_is_answered_with_a_response_or_with_its_error() -> None:
    server = Server()
    client = server.worker("worker-0.1")
    first, second = pulled(client, 1), pulled(client, 2)
    (target,) = server.targets
    pull, answered = target.pulls.get(timeout=SOON_S)
    partition = FetchedPartition("t", 0, (0, 1), 0, 1, size=3)
    reply = FetchReply(broker=1, sequence=pull.sequence, partitions=[partition], size=3)
    answered((reply, [memoryview(b"abc")]))
    found, (records,) = first.get(timeout=SOON_S)
    assert (found, bytes(records)) == (reply, b"abc")
    target.pulls.get(timeout=SOON_S)[1](NodeNotReadyError("not yet"))
    assert isinstance(second.get(timeout=SOON_S), NodeNotReadyError)
    client.close()
    assert target.was_shut.wait(SOON_S), "nothing is fetched for a worker that is gone"


def test_a_process_of_another_user_is_served_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_server, "same_user", lambda sock: False)
    server = Server()
    with server.accept() as ours:
        assert ours.recv(1) == b"", "its end is closed"
    assert server.targets == []


def test_a_worker_is_known_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is served before it is known would be served on when it is forgotten."""
    server, known = Server(), []

    def begin(client: Any) -> None:
        known.append(client in server.server._clients)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(shm_server._ClientConnection, "begin", begin)
    with pytest.raises(RuntimeError, match="new thread"):
        server.accept()
    assert known == [True]
    assert server.server._clients == set(), "its worker pulls through Ray"


def test_what_a_worker_had_in_hand_is_read_behind_its_end_and_dropped_when_it_is_forgotten() -> None:
    server, record = Server(), CallRecord.of_this_process()
    assert record is not None
    partition = TopicPartition("t", 3)
    record.call_began(partition, 5, 9)
    client = server.worker("worker-0.1", record)
    outcome = pulled(client, 1)
    server.targets[0].pulls.get(timeout=SOON_S)
    assert server.server.crash_report("worker-0.1") == CrashReport([CallInHand(partition, 5, 9)])
    assert server.server.crash_report("worker-1.1") is None
    server.server.forget(["worker-0.1"])
    assert isinstance(outcome.get(timeout=SOON_S), DisconnectedError)
    assert server.targets[0].was_shut.wait(SOON_S)
    assert server.server.crash_report("worker-0.1") is None


def test_other_workers_stay_when_one_is_forgotten() -> None:
    server = Server()
    clients = [server.worker(name) for name in ("worker-0.1", "worker-1.1")]
    outcomes = [pulled(client, 1) for client in clients]
    found = [target.pulls.get(timeout=SOON_S) for target in server.targets]
    server.server.forget(["worker-0.1"])
    assert isinstance(outcomes[0].get(timeout=SOON_S), DisconnectedError)
    found[1][1](NodeNotReadyError("an answer"))
    assert isinstance(outcomes[1].get(timeout=SOON_S), NodeNotReadyError)
    clients[1].close()


def test_what_is_no_pull_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    with server.accept() as ours:
        send(ours, b"worker-0.1")
        send(ours, b"no pull")
        assert ours.recv(1) == b""
    assert server.targets[0].was_shut.wait(SOON_S)
    assert "the pulls of worker worker-0.1 are not understood" in caplog.text


@in_loop
async def test_without_linux_there_is_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_server.sys, "platform", "darwin")
    assert await Server().server.name() is None
    assert len(asyncio.all_tasks()) == 1, "nothing listens"


def test_descriptors_of_workers_that_come_again_are_closed() -> None:
    server, record = Server(), CallRecord.of_this_process()
    assert record is not None
    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for _ in range(3):
        client = server.worker("worker-0.1", record)
        pulled(client, 1)
        server.targets[-1].pulls.get(timeout=SOON_S)
        client.close()
        assert server.targets[-1].was_shut.wait(SOON_S)
    server.server.forget(["worker-0.1"])
    for thread in set(threading.enumerate()) - threads:
        thread.join(SOON_S)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
