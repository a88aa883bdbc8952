"""The way of record bytes from a connection actor to the workers of its node: a Unix socket, and memory that both have.

A call through Ray costs all processes together some 2.5 ms of CPU and 3 ms of time, and its object store copies every
byte once more. Here a response lies where it was received, and the worker is told where; what is little goes through
the socket itself. The threads that send and receive do so themselves: no event loop lies between a broker's response
and the worker's fetcher.

The socket has an abstract name (Linux): nothing is left behind on a disk, and no process of another user is let in.
This is the worker's side, and what both sides say; `doorkeeper` is the other one.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.messages import FetchReply, Outcome, Pull
from kafka_actors.job.messages import pack, unpack

from .shared_memory import MappedMemory, MemoryRegion

__all__ = ["PullRequest", "PullResponse", "SharedMemoryClient", "prepare", "receive", "same_user", "send"]

SEND_TIMEOUT_S = 5
"""A process that is stopped reads nothing; whoever talks to it is not to be stopped by that too."""

_HEAD = struct.Struct(">II")  # length of the message, and of the bytes behind it
_TIMEVAL = struct.Struct("@ll")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_MOST_DESCRIPTORS = 16
_MOST_PARTS = 512  # the system takes 1,024

logger = logging.getLogger(__name__)


class PullRequest(msgspec.Struct, frozen=True, tag=True):
    """A pull, and what its sender has read of the answers before."""

    pull: Pull
    released: list[int] = []


class PullResponse(msgspec.Struct, frozen=True, tag=True):
    """What a pull brought; or why it failed, as a pickled exception. A reply without a place has its record bytes
    behind this message. `came` and `gone`: pieces of the memory, the first with a descriptor each."""

    reply: FetchReply | None = None
    place: MemoryRegion | None = None
    came: list[tuple[int, int]] = []
    gone: list[int] = []
    error: bytes = b""


def prepare(sock: socket.socket) -> None:
    """Sending may not block for ever. A timeout of the socket object would make it one that never blocks."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(SEND_TIMEOUT_S, 0))


def same_user(sock: socket.socket) -> bool:
    """Whether the process at the other end runs as our user: of the one that listens, whoever has the socket now."""
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.getuid())


def send(
    sock: socket.socket,
    message: bytes,
    parts: Sequence[bytes | memoryview] = (),
    descriptors: Sequence[int] = (),
) -> None:
    """Sends a message and the bytes behind it. Raises `OSError`, after which the socket is of no use."""
    size = sum(len(part) for part in parts)
    head = _HEAD.pack(len(message), size) + message
    sent = socket.send_fds(sock, [head], descriptors) if descriptors else sock.send(head)
    if sent < len(head):
        sock.sendall(head[sent:])
    if len(parts) > _MOST_PARTS:
        parts = [b"".join(parts)]
    if parts:
        sent = sock.sendmsg(parts)
        if sent < size:
            sock.sendall(b"".join(parts)[sent:])


def receive(sock: socket.socket) -> tuple[memoryview, memoryview, list[int]]:
    """A message, the bytes behind it and its descriptors. Raises `OSError`; `EOFError` where the other side is gone."""
    flags = socket.MSG_CMSG_CLOEXEC  # a process that the user's function starts has no use for them
    head, descriptors, _, _ = socket.recv_fds(sock, _HEAD.size, _MOST_DESCRIPTORS, flags | socket.MSG_WAITALL)
    try:
        while head and len(head) < _HEAD.size:
            more, others, _, _ = socket.recv_fds(sock, _HEAD.size - len(head), _MOST_DESCRIPTORS, flags)
            if not more:
                raise EOFError
            head += more
            descriptors += others
        if not head:
            raise EOFError
        length, behind = _HEAD.unpack(head)
        body = memoryview(bytearray(length + behind))
        got = 0
        while got < len(body):
            received = sock.recv_into(body[got:], flags=socket.MSG_WAITALL)
            if not received:
                raise EOFError
            got += received
    except BaseException:
        for descriptor in descriptors:  # each would keep a piece of memory
            os.close(descriptor)
        raise
    return body[:length], body[length:].toreadonly(), list(descriptors)


class SharedMemoryClient:
    """The worker's side. A door that failed stays `closed`, and all its pulls fail with `DisconnectedError`."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()  # of what waits, and of sending
        self._waiting: deque[Callable[[Outcome], None]] = deque()
        self._memory = MappedMemory()
        self._closed = False
        threading.Thread(target=self._read, name="door", daemon=True).start()

    @classmethod
    def open(cls, name: str, worker: str, note: int | None = None) -> SharedMemoryClient:
        """`note`: the descriptor of the worker's `CallRecord`. Raises `OSError`: the connection actor is gone, lives in a container of its own, or runs as another user."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(f"\0{name}")
            if not same_user(sock):  # what it says is unpickled
                raise PermissionError(f"the door {name} was opened by a process of another user")
            prepare(sock)
            send(sock, worker.encode(), descriptors=[] if note is None else [note])
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @property
    def closed(self) -> bool:
        return self._closed

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None:
        """Calls `answered` in the door's thread, in the order of the pulls; at once where it is closed."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.append(answered)
                try:
                    send(self._socket, pack(PullRequest(pull, self._memory.released())))
                except OSError:
                    self._shut()  # the thread answers
        if closed:
            answered(DisconnectedError("the connection actor's door is closed"))

    def close(self) -> None:
        """Pulls that wait fail with `DisconnectedError`."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side was faster
            pass

    def _read(self) -> None:
        try:
            while True:
                message, behind, descriptors = receive(self._socket)
                answered = unpack(message, PullResponse)
                self._memory.learn(answered.came, descriptors, answered.gone)
                outcome = self._outcome(answered, behind)
                del message, behind
                self._waiting.popleft()(outcome)
                del outcome  # what nobody reads any more is released, also while nothing comes
        except (EOFError, OSError):
            pass
        except Exception:
            logger.exception("what came through the door is not understood")
        finally:
            with self._lock:
                self._closed = True
                waiting, self._waiting = self._waiting, deque()
                self._socket.close()
            for unanswered in waiting:
                unanswered(DisconnectedError("the connection actor is gone"))

    def _outcome(self, answered: PullResponse, behind: memoryview) -> Outcome:
        reply = answered.reply
        if reply is None:
            # Of a process of the same user, which `open` has checked.
            error: Exception = pickle.loads(answered.error)
            return error
        sizes = [fetched.size for fetched in reply.partitions]
        if answered.place is not None:
            return reply, self._memory.views(answered.place, sizes)
        ends = list(itertools.accumulate(sizes))
        return reply, [behind[end - size : end] for end, size in zip(ends, sizes, strict=True)]
