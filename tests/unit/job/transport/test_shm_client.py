"""The worker's side of the shared-memory transport on a pair of sockets: messages and descriptors whole, pulls in order, and what fails."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_actors.errors import DisconnectedError, NodeNotReadyError
from kafka_actors.fetch.messages import FetchedPartition, FetchReply, Pull
from kafka_actors.job.messages import pack, packed_error, unpack
from kafka_actors.job.transport import shm_client
from kafka_actors.job.transport.shm_client import (
    PullRequest,
    PullResponse,
    SharedMemoryClient,
    receive,
    same_user,
    send,
)

SOON_S = 30


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        yield ours, theirs


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("parts", [[], [b"ab", memoryview(b"c")], [b"x"] * 600], ids=["none", "few", "many"])
def test_a_message_arrives_with_the_bytes_behind_it(pair: Any, parts: list[bytes]) -> None:
    ours, theirs = pair
    send(ours, b"message", parts)
    message, behind, descriptors = receive(theirs)
    assert (bytes(message), bytes(behind), descriptors) == (b"message", b"".join(parts), [])


def test_descriptors_arrive_with_their_message(pair: Any) -> None:
    ours, theirs = pair
    memory = os.memfd_create("test")
    os.write(memory, b"records")
    send(ours, b"m", [b"behind"], [memory])
    os.close(memory)
    message, behind, (arrived,) = receive(theirs)
    assert (bytes(message), bytes(behind)) == (b"m", b"behind")
    assert os.pread(arrived, 10, 0) == b"records"
    assert not os.get_inheritable(arrived), "a process that the user's function starts would keep the memory"
    os.close(arrived)


@pytest.mark.parametrize("kept", [0, 3, 9, 12])
def test_a_message_that_is_cut_anywhere_is_an_end_and_leaves_no_descriptor_open(pair: Any, kept: int) -> None:
    ours, theirs = pair
    recording, recorded = socket.socketpair()
    with recording, recorded:
        send(recording, b"message", [b"behind"])
        whole = recorded.recv(100)
    memory = os.memfd_create("test")
    if kept:
        socket.send_fds(ours, [whole[:kept]], [memory])
    os.close(memory)
    ours.close()
    before = open_descriptors()
    with pytest.raises(EOFError):
        receive(theirs)
    assert open_descriptors() <= before


def test_both_ends_of_a_pair_are_of_one_user(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_user(pair[0])
    monkeypatch.setattr(os, "getuid", lambda: 1 << 20)
    assert not same_user(pair[0])


def test_where_the_system_gives_no_thread_the_socket_is_closed_and_pulls_can_go_another_way(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: None)
    monkeypatch.setattr(shm_client, "same_user", lambda _: True)
    monkeypatch.setattr(shm_client, "send", lambda *_, **__: None)
    before = open_descriptors()
    with pytest.raises(OSError, match="can't start new thread"):
        SharedMemoryClient.open("name", "worker")
    assert open_descriptors() <= before


class Peer:
    """A client, and the socket on which it sends pulls and gets responses."""

    def __init__(self, pair: tuple[socket.socket, socket.socket]) -> None:
        ours, self.socket = pair
        self.client = SharedMemoryClient(ours)
        self.outcomes: queue.Queue[tuple[int, Any]] = queue.Queue()

    def pull(self, sequence: int) -> None:
        self.client.fetch(Pull(sequence), lambda outcome: self.outcomes.put((sequence, outcome)))

    def pulled(self) -> int:
        return unpack(receive(self.socket)[0], PullRequest).pull.sequence

    def answer(self, response: PullResponse, *behind: bytes) -> None:
        send(self.socket, pack(response), behind)

    def outcome(self) -> tuple[int, Any]:
        return self.outcomes.get(timeout=SOON_S)


def reply(sequence: int, *sizes: int) -> FetchReply:
    partitions = [FetchedPartition("t", n, (0, 1), 0, 1, size=size) for n, size in enumerate(sizes)]
    return FetchReply(broker=1, sequence=sequence, partitions=partitions, size=sum(sizes))


def test_responses_come_to_their_pulls_in_order(pair: Any) -> None:
    peer = Peer(pair)
    for sequence in (1, 2, 3):
        peer.pull(sequence)
    assert [peer.pulled() for _ in range(3)] == [1, 2, 3]
    peer.answer(PullResponse(reply(1, 2, 3)), b"abcde")
    peer.answer(PullResponse(error=packed_error(NodeNotReadyError("not yet"))))
    peer.answer(PullResponse(reply(3)))
    number, (answer, records) = peer.outcome()
    assert (number, answer, [bytes(one) for one in records]) == (1, reply(1, 2, 3), [b"ab", b"cde"])
    number, error = peer.outcome()
    assert number == 2
    assert isinstance(error, NodeNotReadyError)
    assert peer.outcome() == (3, (reply(3), []))
    peer.client.close()


@pytest.mark.parametrize("ends", ["peer", "client"])
def test_pulls_without_a_response_fail_when_the_socket_ends_and_later_ones_at_once(
    pair: Any, ends: str
) -> None:
    peer = Peer(pair)
    peer.pull(1)
    peer.pull(2)
    if ends == "peer":
        peer.socket.close()
    else:
        peer.client.close()
    found = [peer.outcome() for _ in range(2)]
    assert [number for number, _ in found] == [1, 2]
    assert all(isinstance(error, DisconnectedError) for _, error in found)
    peer.pull(3)
    number, error = peer.outcome()
    assert (number, type(error), peer.client.closed) == (3, DisconnectedError, True)


def test_a_message_that_is_not_understood_ends_the_transport(
    pair: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(pair)
    peer.pull(1)
    send(peer.socket, b"no message")
    assert isinstance(peer.outcome()[1], DisconnectedError)
    assert "is not understood" in caplog.text
