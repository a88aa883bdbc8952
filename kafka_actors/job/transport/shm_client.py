"""Shared-memory transport, the worker's side, and the wire format of both sides. `shm_server` is the other side.

A call through Ray costs all processes together some 2.5 ms of CPU and 3 ms of time, and its object store copies every
byte once more. Here a response stays where it was received, and a message over a Unix socket tells the worker where;
small responses go through the socket itself. Threads send and receive directly: no event loop lies between a broker's
response and the worker's fetcher.

The socket has an abstract name (Linux): no file is left behind, and processes of other users are refused.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.messages import FetchReply, Outcome, Pull
from kafka_actors.job.messages import pack, unpack

from .shared_memory import MappedMemory, MemoryRegion

__all__ = [
    "PullRequest",
    "PullResponse",
    "SharedMemoryClient",
    "receive",
    "same_user",
    "send",
    "set_send_timeout",
]

SEND_TIMEOUT_S = 5
"""Sending fails after this time: a stopped process reads nothing, and must not block the one that sends to it."""

_HEAD = struct.Struct(">II")  # length of the message, and of the bytes behind it
_TIMEVAL = struct.Struct("@ll")
_DESCRIPTOR = struct.Struct("@i")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_MOST_DESCRIPTORS = 16
_ROOM = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR.size)
_FLAGS = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_WAITALL) if sys.platform == "linux" else 0
_MOST_PARTS = 512  # the system takes 1,024

logger = logging.getLogger(__name__)


class PullRequest(msgspec.Struct, frozen=True, tag=True):
    """A pull, and the memory regions of earlier responses that the worker no longer reads."""

    pull: Pull
    released: list[int] = []


class PullResponse(msgspec.Struct, frozen=True, tag=True):
    """The response to a pull; or why it failed: `error`, a pickled exception.

    Without a `region` the record bytes follow this message on the socket. `added` and `removed`: pieces of memory; a
    descriptor of each added piece comes with the message.
    """

    reply: FetchReply | None = None
    region: MemoryRegion | None = None
    added: list[tuple[int, int]] = []
    removed: list[int] = []
    error: bytes = b""


def set_send_timeout(sock: socket.socket) -> None:
    """Bounds how long a blocking `send` takes. `socket.settimeout` would make the socket non-blocking instead."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(SEND_TIMEOUT_S, 0))


def same_user(sock: socket.socket) -> bool:
    """Whether the peer's process runs as our user. Of a listening socket that is the process that called `listen`."""
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.getuid())


def send(
    sock: socket.socket,
    message: bytes,
    parts: Sequence[bytes | memoryview] = (),
    descriptors: Sequence[int] = (),
) -> None:
    """Sends a message, the bytes that follow it and descriptors. Raises `OSError`; then the socket is unusable."""
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
    """Receives a message, the bytes that follow it and its descriptors. Raises `OSError`, and `EOFError` when the peer has
    closed the socket."""
    head, descriptors = _receive_head(sock, _HEAD.size)
    try:
        while head and len(head) < _HEAD.size:
            more, others = _receive_head(sock, _HEAD.size - len(head))
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
        for descriptor in descriptors:  # an open one would keep its piece of memory
            os.close(descriptor)
        raise
    return body[:length], body[length:].toreadonly(), descriptors


def _receive_head(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Receives up to so many bytes, and the descriptors that come with them; processes that the user's function starts don't inherit these.
    (`socket.recv_fds` passes no flags on.)"""
    data, controls, _, _ = sock.recvmsg(size, _ROOM, _FLAGS)
    if not controls:
        return data, []
    rights = [
        payload
        for level, kind, payload in controls
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
    ]
    return data, [number for payload in rights for (number,) in _DESCRIPTOR.iter_unpack(payload)]


class SharedMemoryClient:
    """Sends pulls and maps their responses. Once `closed`, all pulls fail with `DisconnectedError`."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()  # guards the queue of pulls, and sending
        self._waiting: deque[Callable[[Outcome], None]] = deque()
        self._memory = MappedMemory()
        self._closed = False
        threading.Thread(target=self._read, name="shm-client", daemon=True).start()

    @classmethod
    def open(cls, name: str, worker: str, call_record: int | None = None) -> SharedMemoryClient:
        """Connects to a connection actor of this node. `call_record`: a descriptor of the worker's `CallRecord`.

        Raises `OSError` where the actor is gone, runs in a container of its own, or as another user, and where the system gives no
        thread.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(f"\0{name}")
            if not same_user(sock):  # its messages are unpickled
                raise PermissionError(f"the socket {name} is of a process of another user")
            set_send_timeout(sock)
            send(sock, worker.encode(), descriptors=[] if call_record is None else [call_record])
            return cls(sock)
        except BaseException as error:
            sock.close()
            if isinstance(error, RuntimeError):
                raise OSError(str(error)) from None
            raise

    @property
    def closed(self) -> bool:
        return self._closed

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None:
        """Sends a pull. `answered` is called in this client's thread, in the order of the pulls; at once if it is closed."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting.append(answered)
                try:
                    send(self._socket, pack(PullRequest(pull, self._memory.released())))
                except OSError:
                    self._shut()  # the thread answers
        if closed:
            answered(DisconnectedError("the shared-memory transport of the connection actor is closed"))

    def close(self) -> None:
        """Closes the socket: pulls without a response fail with `DisconnectedError`."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the peer has closed it already
            pass

    def _read(self) -> None:
        try:
            while True:
                message, behind, descriptors = receive(self._socket)
                answered = unpack(message, PullResponse)
                self._memory.update(answered.added, descriptors, answered.removed)
                outcome = self._outcome(answered, behind)
                del message, behind
                self._waiting.popleft()(outcome)
                del outcome  # else its memory would be kept until the next response
        except (EOFError, OSError):
            pass
        except Exception:
            logger.exception("a message of the connection actor is not understood")
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
            # Sent by a process of the same user, which `open` has checked.
            error: Exception = pickle.loads(answered.error)
            return error
        sizes = [fetched.size for fetched in reply.partitions]
        if answered.region is not None:
            return reply, self._memory.views(answered.region, sizes)
        ends = list(itertools.accumulate(sizes))
        return reply, [behind[end - size : end] for end, size in zip(ends, sizes, strict=True)]
