"""Schemas asked for once: in a process by `SchemaCache`, however many threads and copies need one; in a job by `SchemaLookups` of its metadata
actor, for all workers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from kafka_actors.base.tasks import in_thread
from kafka_actors.errors import DisconnectedError
from kafka_actors.schemas.errors import SchemaNotFoundError
from kafka_actors.schemas.registry import Schema, SchemaAddress, SchemaRequest, SharedRegistry, schema_at

MISSING_S = 5.0
"""Seconds for which what isn't there is not asked for again: records with a broken id come by the thousand, and a new schema soon."""
MOST_MISSING = 1_000
MOST_CACHES = 32
"""Caches that a process keeps for copies that are still to come, as those of a query's next tasks."""


class SchemaCache:
    """Schemas by id, by GUID, and by subject and version: none of them ever changes. What isn't there is known for `MISSING_S`. For any thread.

    Copies by pickle share one cache in a process, so a process that unpickles a registry for each task asks once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._token = uuid.uuid4().hex
        self._known: dict[SchemaAddress, Schema] = {}
        self._prepare()

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._asking: dict[SchemaAddress, threading.Lock] = {}
        self._missing: dict[SchemaAddress, tuple[float, SchemaNotFoundError]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return _shared, (self._token, dict(self._known))

    def known(self, found: Mapping[SchemaAddress, Schema]) -> None:
        """Adds what was found otherwise."""
        with self._lock:
            for address, schema in found.items():
                self._known.setdefault(address, schema)

    def once(self, address: SchemaAddress, ask: Callable[[], Schema]) -> Schema:
        """Returns what is known. Where there is nothing yet, one thread asks, and others wait for it. Raises what `ask` raises."""
        with self._lock:
            if (known := self._look(address)) is not None:
                return known
            asking = self._asking.setdefault(address, threading.Lock())
        with asking:
            try:
                with self._lock:
                    if (known := self._look(address)) is not None:
                        return known
                return self._fetch(address, ask)
            finally:
                with self._lock:
                    self._asking.pop(address, None)

    def _fetch(self, address: SchemaAddress, ask: Callable[[], Schema]) -> Schema:
        try:
            found = ask()
        except SchemaNotFoundError as error:
            with self._lock:
                if len(self._missing) >= MOST_MISSING:
                    self._missing.clear()
                self._missing[address] = self._clock() + MISSING_S, error
            raise
        with self._lock:
            self._known[address] = found
        return found

    def _look(self, address: SchemaAddress) -> Schema | None:
        """Returns what is known, and raises what is known not to be there. Call it with the lock held."""
        known = self._known.get(address)
        if known is None and address in self._missing:
            until, error = self._missing.pop(address)
            if self._clock() < until:
                self._missing[address] = until, error
                raise error.with_traceback(None)
        return known


_caches: OrderedDict[str, SchemaCache] = OrderedDict()
_lock = threading.Lock()


def _shared(token: str, known: dict[SchemaAddress, Schema]) -> SchemaCache:
    """The cache of this process for copies of one registry, with what the copy brought along."""
    with _lock:
        cache = _caches.get(token)
        if cache is None:
            cache = _caches[token] = SchemaCache()
            cache._token = token
        _caches.move_to_end(token)
        while len(_caches) > MOST_CACHES:
            _caches.popitem(last=False)
    cache.known(known)
    return cache


# ---------------------------------------------------------------- a job


ANSWER_S = 40.0
"""Longest time to wait for the metadata actor: behind it a worker asks the registry itself. It is longer than the registry's client takes
with three rounds over one address that doesn't answer."""


THREADS = 8
"""Questions to registries that are under way at the same time."""


class SchemaLookups:
    """Questions to registries, in the metadata actor: one that is under way is shared by all who ask the same. They have threads of their own:
    in those of the loop, which a registry that hangs would fill, the names of brokers are looked up."""

    def __init__(self, registries: Sequence[SharedRegistry]) -> None:
        self._registries = registries
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, "schemas")
        self._asking: dict[SchemaRequest, asyncio.Task[Schema]] = {}

    async def find(self, request: SchemaRequest) -> Schema:
        """The schema. Raises as the registry, to all who wait for the same, and `DisconnectedError` where the system gives no thread."""
        task = self._asking.get(request)
        if task is None:
            task = self._asking[request] = asyncio.ensure_future(self._ask(request))
            task.add_done_callback(lambda _: self._asking.pop(request))
        return await asyncio.shield(task)

    async def _ask(self, request: SchemaRequest) -> Schema:
        registry = self._registries[request.registry]
        try:
            asked = in_thread(partial(schema_at, registry, request.address), self._threads)
        except RuntimeError as error:
            raise DisconnectedError(f"there is no thread to ask the registry: {error}") from error
        return await asked


class SchemaLink(Protocol):
    """Call to the metadata actor."""

    async def schema(self, request: SchemaRequest) -> Schema:
        """The schema. Raises `DisconnectedError` while there is no such actor, and as the registry."""
        ...


def ask_by(link: SchemaLink, registries: Sequence[SharedRegistry], timeout_s: float = ANSWER_S) -> None:
    """Has a worker's registries ask the metadata actor first. It is called in the worker's event loop, and the registries ask in other
    threads."""
    loop = asyncio.get_running_loop()

    def asking(number: int) -> Callable[[SchemaAddress], Schema | None]:
        def ask(address: SchemaAddress) -> Schema | None:
            found = asyncio.run_coroutine_threadsafe(link.schema(SchemaRequest(number, address)), loop)
            try:
                return found.result(timeout_s)
            except (DisconnectedError, TimeoutError, concurrent.futures.CancelledError):
                found.cancel()
                return None

        return ask

    for number, registry in enumerate(registries):
        registry.ask_first(asking(number))
