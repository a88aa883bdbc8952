"""A connection actor's side of the door: lets workers in, and carries out their pulls."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kafka_actors.fetch.messages import Outcome, Pull
from kafka_actors.job.messages import CrashReport, pack, packed_error, unpack
from kafka_actors.job.worker.call_record import last_words

from .shared_memory import SharedMemory
from .shm_client import PullRequest, PullResponse, prepare, receive, same_user, send

__all__ = ["PullTarget", "SharedMemoryServer"]

LET_IN_AGAIN_S = 0.5
"""After a worker could not be let in: what there is too little of, file descriptors, doesn't come at once."""

logger = logging.getLogger(__name__)


class PullTarget(Protocol):
    """Where a worker's pulls are carried out, in order: `fetch.BrokerFetcher`."""

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None: ...
    def shut(self) -> None: ...


class SharedMemoryServer:
    """`fetcher(memory)` makes what carries out one worker's pulls, and receives into that memory."""

    def __init__(self, fetcher: Callable[[SharedMemory], PullTarget]) -> None:
        self._fetcher = fetcher
        self._name: str | None = None
        self._visits: set[_ClientConnection] = set()
        self._notes: dict[str, int] = {}
        self._letting_in: asyncio.Task[None] | None = None

    async def name(self) -> str | None:
        """What to `SharedMemoryClient.open`; None where the system has no such sockets."""
        if self._letting_in is None and sys.platform == "linux":
            self._name = f"kafka-actors-{secrets.token_hex(16)}"
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(f"\0{self._name}")
            listening.listen()
            listening.setblocking(False)
            self._letting_in = asyncio.ensure_future(self._let_in(listening))
        return self._name

    def forget(self, workers: Collection[str]) -> None:
        """These are gone: nothing of theirs is kept."""
        for worker in workers:
            self._drop_note(worker)
        for visit in self._visits:
            if visit.worker in workers:
                visit.end()
        self._visits = {v for v in self._visits if not v.ended and v.worker not in workers}

    def last_words(self, worker: str) -> CrashReport | None:
        """What a worker's note says now, also after its death; None of one that never came, or where
        it can't be read."""
        note = self._notes.get(worker)
        return None if note is None else last_words(note)

    def _keep_note(self, worker: str, descriptors: Sequence[int]) -> None:
        """From the thread of a visit."""
        self._drop_note(worker)
        for note in descriptors:
            self._notes[worker] = note

    def _drop_note(self, worker: str) -> None:
        if (note := self._notes.pop(worker, None)) is not None:
            os.close(note)

    async def _let_in(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    sock, _ = await loop.sock_accept(listening)
                    self._welcome(sock)
                except (OSError, RuntimeError) as error:
                    # Too few descriptors, or threads: later there may be more.
                    logger.warning("a worker could not be let in: %s", error)
                    await asyncio.sleep(LET_IN_AGAIN_S)

    def _welcome(self, sock: socket.socket) -> None:
        """Not in the loop above, which would keep the last visit until the next one comes."""
        sock.setblocking(True)
        if not same_user(sock):
            sock.close()
            return
        try:
            visit = _ClientConnection(sock, self._fetcher, self._keep_note)
            visit.begin()
        except BaseException:
            sock.close()  # the worker is to know
            raise
        self._visits = {other for other in self._visits if not other.ended} | {visit}


class _ClientConnection:
    """One worker at the door: a thread reads its pulls, and the thread of its fetcher answers them."""

    def __init__(
        self,
        sock: socket.socket,
        fetcher: Callable[[SharedMemory], PullTarget],
        keep_note: Callable[[str, Sequence[int]], None],
    ) -> None:
        prepare(sock)
        self.worker = ""
        self.ended = False
        self._socket = sock
        self._keep_note = keep_note
        self._lock = threading.Lock()  # of sending, and of closing
        self._memory = SharedMemory()
        self._fetcher = fetcher(self._memory)

    def begin(self) -> None:
        threading.Thread(target=self._read, name="doorkeeper", daemon=True).start()

    def end(self) -> None:
        """From any thread."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the worker was faster
            pass

    def _read(self) -> None:
        try:
            name, _, descriptors = receive(self._socket)
            self.worker = bytes(name).decode()
            self._keep_note(self.worker, descriptors)
            while True:
                asked = unpack(receive(self._socket)[0], PullRequest)
                self._memory.give_back(asked.released)
                self._fetcher.fetch(asked.pull, self._answer)
        except (EOFError, OSError):
            pass  # the worker is gone
        except Exception:
            logger.exception("the pulls of worker %s are not understood", self.worker)
        finally:
            self._fetcher.shut()
            with self._lock:
                self.ended = True
                self._socket.close()

    def _answer(self, outcome: Outcome) -> None:
        """Called as pulls are done, which is in their order."""
        reply, place, error = None, None, b""
        behind: Sequence[bytes | memoryview] = ()
        if isinstance(outcome, Exception):
            error = packed_error(outcome)
        else:
            reply, records = outcome
            place = self._memory.lend(records)
            behind = records if place is None else ()
        came, descriptors, gone = self._memory.news()
        answered = PullResponse(reply, place, came, gone, error)
        try:
            with self._lock:
                if not self.ended:
                    send(self._socket, pack(answered), behind, descriptors)
        except OSError:  # the worker is gone, or stopped for long
            self.end()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
