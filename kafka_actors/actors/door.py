"""The short way of little answers: a Unix socket from a connection actor to the workers of its node.

A call through Ray costs all processes together some 2.5 ms of CPU and 3 ms of time, and megabytes are what the object
store is for. Where records trickle, that time would be most of what a record takes. So a worker whose last answer
brought little sends its next pull here, and goes back to Ray once there is much.

The socket has an abstract name (Linux): nothing is left behind on a disk, and no process of another user is let in.
Frames are four bytes of length and a body. The worker's first frame is its name, the others are `Pull`s; each is
answered, in order, by an `Answers` behind its own length, and then the record bytes of all its partitions.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.messages import FetchReply, Pull

from .messages import pack, unpack

__all__ = ["Answer", "Door", "DoorKeeper"]

Answer = tuple[FetchReply, Sequence[bytes | memoryview]]

_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

logger = logging.getLogger(__name__)


class Answers(msgspec.Struct, frozen=True, tag=True):
    """What one pull brought, without the record bytes; or why it failed."""

    replies: list[FetchReply] = []
    error: str = ""


class Pulls(Protocol):
    """Where a worker's pulls are carried out, in order: `fetch.BrokerFetcher`."""

    def pull(self, pull: Pull) -> asyncio.Future[list[Answer]]: ...


class DoorKeeper:
    """The connection actor's side. `fetcher(worker)` gives what carries out that worker's pulls."""

    def __init__(self, fetcher: Callable[[str], Pulls]) -> None:
        self._fetcher = fetcher
        self._name: str | None = None
        self._server: asyncio.Server | None = None

    async def name(self) -> str | None:
        """What to `Door.open`; None where the system has no such sockets."""
        if self._server is None and sys.platform == "linux":
            self._name = f"kafka-actors-{secrets.token_hex(16)}"
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(f"\0{self._name}")
            self._server = await asyncio.start_unix_server(self._serve, sock=listening)
        return self._name

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _same_user(writer):
                return
            fetcher = self._fetcher((await _frame(reader)).decode())
            while True:
                answering = fetcher.pull(unpack(await _frame(reader), Pull))
                answering.add_done_callback(lambda done: _answer(writer, done))
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the worker is gone, or this actor ends: asyncio would log that with a traceback
        except Exception:
            logger.exception("a worker's pulls are not understood")
        finally:
            writer.close()


def _same_user(writer: asyncio.StreamWriter) -> bool:
    sock = writer.get_extra_info("socket")
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(told)
    return bool(uid == os.getuid())


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(size)


def _answer(writer: asyncio.StreamWriter, done: asyncio.Future[list[Answer]]) -> None:
    """Called as the pulls are done, which is in their order."""
    if done.cancelled():
        return
    error, answers = done.exception(), []  # asked for in any case: asyncio would log one that nobody wanted
    if writer.is_closing():
        return
    if error is None:
        answers = done.result()
    head = pack(Answers([reply for reply, _ in answers], "" if error is None else str(error)))
    records = [data for _, parts in answers for data in parts]
    size = _LENGTH.size + len(head) + sum(len(data) for data in records)
    writer.write(b"".join((_LENGTH.pack(size), _LENGTH.pack(len(head)), head, *records)))


class Door:
    """The worker's side. A door that failed stays `closed`, and all its pulls fail with `DisconnectedError`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.closed = False
        self._writer = writer
        self._waiting: deque[asyncio.Future[list[Answer]]] = deque()
        self._reading = asyncio.ensure_future(self._read(reader))

    @classmethod
    async def open(cls, name: str, worker: str) -> Door:
        """Raises `OSError`: the connection actor is gone, or lives in a container of its own."""
        door = cls(*await asyncio.open_unix_connection(f"\0{name}"))
        door._send(worker.encode())
        return door

    def pull(self, pull: Pull) -> asyncio.Future[list[Answer]]:
        """The future of its answers. It fails with `DisconnectedError`."""
        answer: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        if self.closed:
            answer.set_exception(DisconnectedError("the connection actor's door is closed"))
            return answer
        self._waiting.append(answer)
        self._send(pack(pull))
        return answer

    def _send(self, body: bytes) -> None:
        self._writer.write(_LENGTH.pack(len(body)) + body)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        why = "the connection actor is gone"
        try:
            while True:
                answers, why = _answers_of(await _frame(reader))
                if why:
                    break
                answer = self._waiting.popleft()
                if not answer.done():  # nobody waits for it any more
                    answer.set_result(answers)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.closed = True
            self._writer.close()
            for answer in self._waiting:
                if not answer.done():
                    answer.set_exception(DisconnectedError(why or "the connection actor is gone"))


def _answers_of(body: bytes) -> tuple[list[Answer], str]:
    """The answers, their record bytes in place; and the error instead, if there is one."""
    view = memoryview(body)
    at = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    head = unpack(view[_LENGTH.size : at], Answers)
    answers: list[Answer] = []
    for reply in head.replies:
        records = []
        for fetched in reply.partitions:
            records.append(view[at : at + fetched.size])
            at += fetched.size
        answers.append((reply, records))
    return answers, head.error
