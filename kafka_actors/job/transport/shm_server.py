"""Shared-memory transport, the connection actor's side: accepts workers and carries out their pulls."""

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
from kafka_actors.job.worker.call_record import read_crash_report

from .shared_memory import SharedMemory
from .shm_client import PullRequest, PullResponse, receive, same_user, send, set_send_timeout

__all__ = ["PullTarget", "SharedMemoryServer"]

ACCEPT_RETRY_S = 0.5
"""Pause after a connection could not be accepted: descriptors or threads that are short stay short for a moment."""

logger = logging.getLogger(__name__)


class PullTarget(Protocol):
    """Carries out one worker's pulls, in order: `fetch.BrokerFetcher`, or a fake."""

    def fetch(self, pull: Pull, answered: Callable[[Outcome], None]) -> None: ...
    def shut(self) -> None: ...


class SharedMemoryServer:
    """Listens for the workers of this node. `fetcher(memory)` makes the target of one worker's pulls, which receives into
    that memory."""

    def __init__(self, fetcher: Callable[[SharedMemory], PullTarget]) -> None:
        self._fetcher = fetcher
        self._name: str | None = None
        self._clients: set[_ClientConnection] = set()
        self._call_records: dict[str, int] = {}
        self._accepting: asyncio.Task[None] | None = None

    async def name(self) -> str | None:
        """Listens, if it doesn't yet. Returns the name for `SharedMemoryClient.open`; None on systems other than Linux."""
        if self._accepting is None and sys.platform == "linux":
            self._name = f"kafka-actors-{secrets.token_hex(16)}"
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(f"\0{self._name}")
            listening.listen()
            listening.setblocking(False)
            self._accepting = asyncio.ensure_future(self._accept_all(listening))
        return self._name

    def forget(self, workers: Collection[str]) -> None:
        """Closes the connections of workers that are gone, and drops their call records."""
        for worker in workers:
            self._drop_call_record(worker)
        for client in self._clients:
            if client.worker in workers:
                client.end()
        self._clients = {v for v in self._clients if not v.ended and v.worker not in workers}

    def crash_report(self, worker: str) -> CrashReport | None:
        """Reads a worker's call record, also after its death. None if the worker never connected, or the record can't be
        read."""
        descriptor = self._call_records.get(worker)
        return None if descriptor is None else read_crash_report(descriptor)

    def _keep_call_record(self, worker: str, descriptors: Sequence[int]) -> None:
        """Runs in the thread of a client."""
        self._drop_call_record(worker)
        for descriptor in descriptors:
            self._call_records[worker] = descriptor

    def _drop_call_record(self, worker: str) -> None:
        if (descriptor := self._call_records.pop(worker, None)) is not None:
            os.close(descriptor)

    async def _accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    sock, _ = await loop.sock_accept(listening)
                    self._accept(sock)
                except (OSError, RuntimeError) as error:
                    # Too few descriptors, or threads: there may be more later.
                    logger.warning("the connection of a worker could not be accepted: %s", error)
                    await asyncio.sleep(ACCEPT_RETRY_S)

    def _accept(self, sock: socket.socket) -> None:
        """Serves one connection. A function of its own: locals of the loop above would keep the last client alive."""
        sock.setblocking(True)
        if not same_user(sock):
            sock.close()
            return
        known = {other for other in self._clients if not other.ended}
        try:
            client = _ClientConnection(sock, self._fetcher, self._keep_call_record)
            self._clients = known | {client}  # before it is served: from then on its worker may be forgotten
            client.begin()
        except BaseException:
            self._clients = known
            sock.close()  # the worker notices, and pulls through Ray
            raise


class _ClientConnection:
    """One worker's connection: a thread reads its pulls, and the thread of its fetcher sends the responses."""

    def __init__(
        self,
        sock: socket.socket,
        fetcher: Callable[[SharedMemory], PullTarget],
        keep_call_record: Callable[[str, Sequence[int]], None],
    ) -> None:
        set_send_timeout(sock)
        self.worker = ""
        self.ended = False
        self._socket = sock
        self._keep_call_record = keep_call_record
        self._lock = threading.Lock()  # guards sending, and closing
        self._memory = SharedMemory()
        self._fetcher = fetcher(self._memory)

    def begin(self) -> None:
        threading.Thread(target=self._read, name="shm-server", daemon=True).start()

    def end(self) -> None:
        """Ends the connection. For any thread."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the worker has closed it already
            pass

    def _read(self) -> None:
        try:
            name, _, descriptors = receive(self._socket)
            self.worker = bytes(name).decode()
            self._keep_call_record(self.worker, descriptors)
            while True:
                request = unpack(receive(self._socket)[0], PullRequest)
                self._memory.release(request.released)
                self._fetcher.fetch(request.pull, self._answer)
        except (EOFError, OSError):
            pass  # the worker has closed it
        except Exception:
            logger.exception("the pulls of worker %s are not understood", self.worker)
        finally:
            self._fetcher.shut()
            with self._lock:
                self.ended = True
                self._socket.close()

    def _answer(self, outcome: Outcome) -> None:
        """Sends the response to a pull. Called in the order of the pulls."""
        reply, region, error = None, None, b""
        behind: Sequence[bytes | memoryview] = ()
        if isinstance(outcome, Exception):
            error = packed_error(outcome)
        else:
            reply, records = outcome
            region = self._memory.share(records)
            behind = records if region is None else ()
        added, descriptors, removed = self._memory.changes()
        answered = PullResponse(reply, region, added, removed, error)
        try:
            with self._lock:
                if not self.ended:
                    send(self._socket, pack(answered), behind, descriptors)
        except OSError:  # the worker is gone, or was stopped for long
            self.end()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
