"""`Simulation`: one run of kafka_actors under a virtual clock, from a seed. See `network.py` for how it is used."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import queue
import random
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from random import Random
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar

import kafka_actors.consumer.async_consumer as async_consumer
import kafka_actors.consumer.consumer_session as consumer_session
import kafka_actors.fetch.broker_fetcher as broker_fetcher
import kafka_actors.net.fetch_socket as fetch_socket
from kafka_actors import AsyncAdmin, AsyncConsumer, AsyncProducer
from kafka_actors.errors import ConnectionFailedError
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka.machines.fake_cluster import FakeCluster

from .fetch_loop import SimulatedFetchLoop
from .lockstep import LockstepQueue
from .network import CLIENT, BlockingSocket, MemoryNetwork, SimulatedLoop

CLIENTS = (AsyncAdmin, AsyncConsumer, AsyncProducer)
"""The clients whose modules are to be there when clocks are put in place; those of other packages have to be imported before, too."""
EPOCH_S = 1_700_000_000
"""The time of day at the clock's 0."""


class SimulatedKafka(FakeKafka):
    """A `FakeKafka` on a `MemoryNetwork`."""

    def __init__(self, world: Simulation, brokers: int, **options: Any) -> None:
        super().__init__(brokers, host=MemoryNetwork.HOST, seed=world.seed, **options)
        self._world = world

    def _shell(self, cluster: FakeCluster) -> Any:
        self._world.network = MemoryNetwork(self._world.loop, cluster, Random(f"network {self._world.seed}"))
        return self._world.network


class Simulation:
    """One run. In its `with` block the clocks, the randomness and the threads of kafka_actors are those of the simulation.

    `errors`: what was logged as an error, and exceptions that nobody took.
    """

    network: MemoryNetwork

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"world {seed}")
        self.errors: list[str] = []
        self.loop = SimulatedLoop()
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Simulation:
        self.loop.set_exception_handler(self._unhandled)
        self._exit.callback(random.setstate, random.getstate())
        random.seed(f"clients {self.seed}")
        self._exit.enter_context(_errors_logged(self.errors))
        self._exit.enter_context(_in_place(self))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.loop.set_exception_handler(lambda *_: None)
            self.loop.lockstep.end()
            closed: set[asyncio.Task[Any]] = set()
            while left := asyncio.all_tasks(self.loop) - closed:  # what is closed may start more
                for task in left:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # else asyncio logs that it never ended
                    _close(task.get_coro())
                closed |= left
            with warnings.catch_warnings():
                # Of what a client left to the loop, which never began it.
                warnings.simplefilter("ignore", RuntimeWarning)
                self.loop.close()
        finally:
            self._exit.close()

    def kafka(self, brokers: int = 1, **options: Any) -> FakeKafka:
        """Starts brokers on the network of this run: see `FakeKafka`."""
        return SimulatedKafka(self, brokers, **options).start()

    def run(self, main: Coroutine[Any, Any, Any], within: float = 600.0) -> Any:
        """Runs a coroutine to its end, `within` seconds of the virtual clock. Raises `TimeoutError`, and `AssertionError` where all
        wait for each other."""

        async def bounded() -> Any:
            async with asyncio.timeout(within):
                return await main

        return self.loop.run_until_complete(bounded())

    # ---------------------------------------------------------------- clients

    def start(self, client: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task of a client: connections, tasks, timers and threads that come of it are the client's."""
        context = copy_context()
        context.run(CLIENT.set, client)
        return self.loop.create_task(work, context=context)

    def kill(self, client: str) -> None:
        """Ends a client as SIGKILL does: nothing of it runs any more, its connections are closed."""
        self.network.note("killed", client)
        self.loop.kill(client)
        self.network.kill_client(client)

    def freeze(self, client: str, seconds: float) -> None:
        """Has nothing of a client run for some seconds, as SIGSTOP and SIGCONT do."""
        self.network.note("frozen", client, seconds)
        self.loop.freeze(client, seconds)

    def _unhandled(self, loop: object, context: dict[str, Any]) -> None:
        error, message = context.get("exception"), str(context.get("message"))
        if message.startswith("Task was destroyed") and self.network.dead:
            return  # a task of a client that was killed
        self.errors.append(f"{message}: {error!r}")


T = TypeVar("T")


def without_gc(work: Callable[[], T]) -> T:
    """Makes a run, and collects garbage behind it: within one, coroutines of what was killed would end at a moment that no seed decides.
    They complain that their loop is closed."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda found: None if "loop is closed" in str(found.exc_value) else hook(found)
    gc.freeze()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        gc.collect()
        gc.unfreeze()
        sys.unraisablehook = hook


# ---------------------------------------------------------------- in place of threads, clocks and sockets


class LoopIo:
    """In place of `IoThread`: coroutines run in the simulation's loop."""

    inside = False
    _owner: ContextVar[object] = ContextVar("owner", default=None)

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.alive = True
        self._context = copy_context()
        self._context.run(self._owner.set, self)

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Starts a coroutine."""
        if not self.alive:
            work.close()
            raise RuntimeError("the thread has ended")
        future: Future[Any] = Future()

        def start() -> None:
            asyncio.futures._chain_future(asyncio.ensure_future(work), future)  # type: ignore[attr-defined]

        self.loop.call_soon(start, context=self._context)
        return future

    def run(self, work: Coroutine[Any, Any, Any], *, timeout: float | None = None) -> Any:
        """Runs a coroutine that waits for nothing."""
        try:
            self._context.copy().run(work.send, None)
        except StopIteration as end:
            return end.value
        raise AssertionError("the event loop itself would block here")

    def post(self, call: Callable[[], object]) -> None:
        """Schedules a call."""
        self.loop.call_soon(call, context=self._context)

    def stop(self, seconds: float = 5.0) -> bool:
        """Takes no more work."""
        self.alive = False
        return True


class _AtOnce:
    """In place of a pool of threads: each call is made at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: Any) -> None:
        pass


def _close(work: Any) -> None:
    """Closes a coroutine that nobody runs any more: else it would be closed in the middle of whatever runs when it is collected. One that
    waits for something while it is closed is closed again."""
    for _ in range(20):
        with contextlib.suppress(BaseException):  # of the work, or Python's, because it waits
            work.close()
            return


@contextlib.contextmanager
def _in_place(world: Simulation) -> Iterator[None]:
    """Puts what runs under the simulation's clock in place of threads, queues, sockets and clocks of kafka_actors."""
    loop = world.loop
    lockstep = loop.lockstep

    def connect_blocking(
        host: str, port: int, options: object, within: float, clock: object, *, first: int
    ) -> BlockingSocket:
        try:
            return world.network.dial_blocking(port, within)
        except OSError as error:
            raise ConnectionFailedError(
                f"{host}:{port}: can't connect: {error or 'no answer in time'}"
            ) from error

    threads = {
        name: getattr(threading, name) for name in ("Lock", "RLock", "Condition", "Event", "get_ident")
    }
    sockets = {name: getattr(socket, name) for name in dir(socket) if name.isupper()}
    places: list[tuple[Any, str, Any]] = [
        (consumer_session, "IoThread", lambda name: LoopIo(loop)),
        (async_consumer, "ThreadPoolExecutor", _AtOnce),
        (broker_fetcher, "threading", SimpleNamespace(**threads, Thread=lockstep.thread)),
        (
            broker_fetcher,
            "queue",
            SimpleNamespace(SimpleQueue=lambda: LockstepQueue(lockstep), Empty=queue.Empty),
        ),
        (broker_fetcher, "FetchLoop", SimulatedFetchLoop),
        (fetch_socket, "connect_blocking", connect_blocking),
        (fetch_socket, "socket", SimpleNamespace(**sockets, socket=BlockingSocket)),
    ]
    with contextlib.ExitStack() as stack:
        for module, name, value in places:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        stack.enter_context(_clock_of(loop, lockstep.sleep))
        yield


# ---------------------------------------------------------------- the clock


class _Clock:
    """The functions of `time` by the virtual clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sleep: Callable[[float], None]) -> None:
        self.module = SimpleNamespace(**vars(time))
        self.module.monotonic = self.module.perf_counter = loop.time
        self.module.time = lambda: EPOCH_S + loop.time()
        self.module.time_ns = lambda: int((EPOCH_S + loop.time()) * 1e9)
        self.module.sleep = sleep
        self._instead = {
            id(getattr(time, name)): getattr(self.module, name) for name in ("monotonic", "time", "time_ns")
        }

    def of(self, value: Any) -> Any:
        """A function of this clock in place of one of `time`; other values as they are."""
        return self._instead.get(id(value), value)


@contextlib.contextmanager
def _clock_of(loop: asyncio.AbstractEventLoop, sleep: Callable[[float], None]) -> Iterator[None]:
    """Lets all modules of kafka_actors read the loop's clock: those that import `time`, and defaults of arguments."""
    clock = _Clock(loop, sleep)
    modules, functions = _clock_readers()
    before = [(function, function.__defaults__, function.__kwdefaults__) for function in functions]
    for module in modules:
        module.time = clock.module  # type: ignore[attr-defined]
    for function, defaults, by_name in before:
        function.__defaults__ = None if defaults is None else tuple(map(clock.of, defaults))
        function.__kwdefaults__ = by_name and {name: clock.of(value) for name, value in by_name.items()}
    try:
        yield
    finally:
        for module in modules:
            module.time = time  # type: ignore[attr-defined]
        for function, defaults, by_name in before:
            function.__defaults__, function.__kwdefaults__ = defaults, by_name


_READERS: dict[int, tuple[list[ModuleType], list[FunctionType]]] = {}


def _clock_readers() -> tuple[list[ModuleType], list[FunctionType]]:
    """Modules of kafka_actors that import `time`, and functions with one of its functions as a default."""
    loaded = [module for name, module in list(sys.modules.items()) if name.startswith("kafka_actors")]
    if len(loaded) not in _READERS:
        _READERS.clear()
        modules = [module for module in loaded if vars(module).get("time") is time]
        functions = [
            function for module in loaded for function in _functions(module) if _takes_time(function)
        ]
        _READERS[len(loaded)] = modules, functions
    return _READERS[len(loaded)]


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for found in vars(value).values() if isinstance(value, type) else [value]:
            function = getattr(found, "__func__", found)
            if isinstance(function, FunctionType):
                yield function


def _takes_time(function: FunctionType) -> bool:
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return any(value in (time.monotonic, time.time, time.time_ns) for value in defaults if callable(value))


# ---------------------------------------------------------------- the log


class _Errors(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        why = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._errors.append(f"{record.name}: {record.getMessage()}{why}")


@contextlib.contextmanager
def _errors_logged(errors: list[str]) -> Iterator[None]:
    handler = _Errors(errors)
    log = logging.getLogger("kafka_actors")
    log.addHandler(handler)
    before = log.propagate
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(handler)
