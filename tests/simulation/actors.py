"""Actors of a job in one event loop under the virtual clock: the real classes of `kafka_actors.ray.actors`, in place of Ray's processes.

An actor is a client of the simulated network: its tasks, timers, threads and connections carry its name, so a kill ends them and a freeze
holds them up, while its connections stay open. Calls between actors go the way of Ray's: `links.call` on a handle, whose `remote` sends a
message with a delay, and gets an answer with a delay; a `CallTrouble` loses either, holds them up, or carries a call out twice. Calls
of one actor to another arrive in their order, but for those that are held up.

What stands in for something else:
- shared memory between a connection actor and its workers: there is none, so workers pull by calls, as on systems without it;
- the record of calls in memory (`CallRecord`), which outlives its worker: an object of the simulation, read by `crash_report`;
- process ids, stopped processes, SIGKILL, Ray's notices of death: those of this simulation;
- decoding ahead in threads, which only large compressed responses have.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from kafka_actors.fetch import shared_records
from kafka_actors.job.messages import ActorInfo, CallInHand, CrashReport, pack
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.job.supervisor.runtime import Death
from kafka_actors.job.worker import processing_thread, thread_callers
from kafka_actors.ray import links
from kafka_actors.ray.actors import actor, connection_actor, coordinator_actor, metadata_actor, worker_actor
from kafka_actors.types import TopicPartition

from .lockstep import Lockstep
from .network import CLIENT

ACTOR: ContextVar[SimulatedActor] = ContextVar("actor")
"""The actor whose code runs."""
FASTEST_S, SLOWEST_S = 0.0003, 0.003
"""Time that a call or its answer takes."""
LATE_S = 4.0
"""The longest time that a late call, or a late answer, takes."""
START_S = 0.4, 2.0
"""Time in which a process comes up."""
NOTICED_S = 0.05, 1.0
"""Time in which Ray notices that a process is gone."""
NODE_NOTICED_S = 8.0, 15.0
"""Time in which Ray notices that a node is gone."""
BESIDE_THE_SUPERVISOR = ("metadata", "coordinator")


class World(Protocol):
    """The simulation that the actors live in: network, loop and choices."""

    loop: Any
    random: Random

    def kill(self, client: str) -> None: ...
    def freeze(self, client: str, seconds: float) -> None: ...


class LockstepWakeup:
    """A `ThreadWakeup` for one thread that takes turns with the loop."""

    def __init__(self, lockstep: Lockstep) -> None:
        self._lockstep = lockstep
        self._called = False
        self._waiting: Any = None

    def __call__(self) -> None:
        self._called = True
        if self._waiting is not None:
            self._lockstep.wake(self._waiting)

    def clear(self) -> None:
        self._called = False

    def wait(self, timeout_s: float | None) -> None:
        if not self._called:
            self._waiting = self._lockstep.running
            self._lockstep.park(timeout_s)
            self._waiting = None
        self._called = False


class LockstepCondition:
    """A `threading.Condition` for threads that take turns with the loop: one runs at a time, so it locks nothing."""

    def __init__(self, lockstep: Lockstep) -> None:
        self._lockstep = lockstep
        self._waiting: deque[Any] = deque()

    def __enter__(self) -> LockstepCondition:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it is notified, or the time is over."""
        thread = self._lockstep.running
        self._waiting.append(thread)
        self._lockstep.park(timeout)
        if thread in self._waiting:
            self._waiting.remove(thread)

    def notify(self, count: int = 1) -> None:
        """Wakes so many of those who wait."""
        for _ in range(min(count, len(self._waiting))):
            self._lockstep.wake(self._waiting.popleft())

    def notify_all(self) -> None:
        """Wakes all who wait."""
        self.notify(len(self._waiting))


class CallTrouble(NamedTuple):
    """Happens to calls between actors `until` a time: the part `lost` gets no answer, the part `twice` is carried out once more, later, and of
    the part `late` call and answer take up to `LATE_S` longer."""

    until: float
    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0


class SimulatedActor:
    """One process of a job. `instance` is made when it has come up; `dead` is done when Ray says that it is gone."""

    def __init__(self, nodes: SimulatedNodes, key: ActorKey, client: str, node: str) -> None:
        self.nodes, self.key, self.client, self.node = nodes, key, client, node
        self.pid = next(nodes.pids)
        self.alive = True
        self.doomed = False
        self.instance: Any = None
        self.up = asyncio.Event()
        self.dead: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.calls: list[asyncio.Future[Any]] = []
        self.context: Context = copy_context()
        self.context.run(CLIENT.set, client)
        self.context.run(ACTOR.set, self)

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self.client in self.nodes.world.loop.frozen

    def end(self, death: Death, noticed_s: tuple[float, float] = NOTICED_S) -> None:
        """Ends it at once: none of its code runs any more."""
        if not self.alive:
            return
        self.alive = False
        self.nodes.world.kill(self.client)
        self.nodes.later(self.nodes.world.random.uniform(*noticed_s), self._noticed, death)

    def _noticed(self, death: Death) -> None:
        if not self.dead.done():
            self.dead.set_result(death)
        for call in self.calls:
            if not call.done():
                call.set_exception(RayActorError(error_msg=death.reason))
        self.calls.clear()

    def __repr__(self) -> str:
        return f"<{self.client} pid {self.pid} on {self.node}{'' if self.alive else ', dead'}>"


class SimulatedNodes:
    """The nodes on which actors run, and the calls between these."""

    def __init__(self, world: World, nodes: int = 1) -> None:
        self.world = world
        self.names = [f"node-{n + 1}" for n in range(nodes)]
        self.pids = itertools.count(100)
        self.actors: list[SimulatedActor] = []
        self.troubles: list[CallTrouble] = []
        self.troubled: list[asyncio.Future[Any]] = []
        """Calls that a trouble has lost or made late."""
        self.on_answer: list[Callable[[SimulatedActor, str, tuple[Any, ...], Any], object]] = []
        self._nobody = copy_context()
        self._nobody.run(CLIENT.set, "")
        self._arrivals: dict[tuple[str, str], float] = {}

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Makes a call later, for nobody."""
        self.world.loop.call_later(seconds, call, *args, context=self._nobody.copy())

    @property
    def live(self) -> list[SimulatedActor]:
        """The actors that are not dead."""
        return [found for found in self.actors if found.alive]

    def with_pid(self, pid: int) -> SimulatedActor | None:
        """The live actor that has a process id."""
        return next((found for found in self.actors if found.alive and found.pid == pid), None)

    def freeze(self, found: SimulatedActor, seconds: float) -> None:
        """Stops an actor's process for some seconds. One that Ray is to end meanwhile ends when it goes on."""
        self.world.freeze(found.client, seconds)
        self.later(seconds, lambda: found.end(Death("its process is gone")) if found.doomed else None)

    def send(self, to: SimulatedActor, method: str, args: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Sends a call; the future has its answer."""
        loop, random = self.world.loop, self.world.random
        answer: asyncio.Future[Any] = loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        to.calls = [call for call in to.calls if not call.done()]
        to.calls.append(answer)
        if to.dead.done():
            self.later(random.uniform(FASTEST_S, SLOWEST_S), to._noticed, Death("its process is gone"))
            return answer
        now = loop.time()
        self.troubles = [trouble for trouble in self.troubles if trouble.until > now]
        trouble = self.troubles[-1] if self.troubles and method != "live" else None
        fate = random.random()
        between = (CLIENT.get(), to.client)
        when = now + random.uniform(FASTEST_S, SLOWEST_S)
        late = trouble is not None and random.random() < trouble.late
        if late:
            when += random.uniform(0, LATE_S)
        else:
            when = self._arrivals[between] = max(when, self._arrivals.get(between, 0.0) + 1e-7)
        lost = trouble is not None and fate < trouble.lost
        self.troubled = [call for call in self.troubled if not call.done()] + [answer] * (late or lost)
        if trouble is not None and lost:
            unheard = ActorUnavailableError("the call was lost", None)
            self.later(random.uniform(0.01, 1.0), self._settle, answer, None, unheard)
            if fate < trouble.lost / 2:
                return answer  # it did not arrive
        loop.call_at(when, self._arrived, to, method, args, answer, late, context=to.context.copy())
        if trouble is not None and fate > 1 - trouble.twice:
            again = loop.create_future()
            again.add_done_callback(lambda done: done.cancelled() or done.exception())
            later = when + random.uniform(0.001, LATE_S)
            loop.call_at(later, self._arrived, to, method, args, again, late, context=to.context.copy())
        return answer

    def _arrived(
        self, to: SimulatedActor, method: str, args: tuple[Any, ...], answer: asyncio.Future[Any], late: bool
    ) -> None:
        self.world.loop.create_task(self._carry_out(to, method, args, answer, late))

    async def _carry_out(
        self, to: SimulatedActor, method: str, args: tuple[Any, ...], answer: asyncio.Future[Any], late: bool
    ) -> None:
        await to.up.wait()
        result: Any = None
        error: Exception | None = None
        try:
            result = await getattr(to.instance, method)(*args)
        except asyncio.CancelledError:
            return
        except Exception as raised:
            error = RayTaskError(method, "", raised)
        for look in self.on_answer:
            look(to, method, args, result)
        delay = self.world.random.uniform(FASTEST_S, LATE_S if late else SLOWEST_S)
        self.later(delay, self._settle, answer, result, error)

    def _settle(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


class _Method:
    """A method of a handle, with Ray's `remote`."""

    def __init__(self, to: SimulatedActor, method: str) -> None:
        self._to, self._method = to, method

    def remote(self, *args: Any) -> asyncio.Future[Any]:
        return self._to.nodes.send(self._to, self._method, args)


class Handle:
    """Handle of an actor, as Ray gives it to others."""

    def __init__(self, to: SimulatedActor) -> None:
        self._to = to

    def __getattr__(self, method: str) -> _Method:
        if method.startswith("_"):
            raise AttributeError(method)
        return _Method(self._to, method)


class SimulatedActorRef:
    """`ActorRef` of the supervisor."""

    def __init__(self, to: SimulatedActor) -> None:
        self.actor = to
        self.raw = Handle(to)

    async def call(self, method: str, *args: Any) -> Any:
        return await links.call(self.raw, method, *args)  # type: ignore[arg-type]

    async def died(self) -> Death:
        return await asyncio.shield(self.actor.dead)


class SimulatedRuntime:
    """`Runtime` of one job, over the nodes. `call_records`: worker → its calls in hand and how it ended."""

    def __init__(self, nodes: SimulatedNodes, job: str) -> None:
        self.nodes, self.job = nodes, job
        self.own_node = nodes.names[0]
        self.call_records: dict[str, SimulatedCallRecord] = {}

    def create(self, key: ActorKey, name: str, args: tuple[Any, ...]) -> SimulatedActorRef:
        random = self.nodes.world.random
        node = key.node or (
            self.own_node if key.kind in BESIDE_THE_SUPERVISOR else random.choice(self.nodes.names)
        )
        client = f"{self.job}/{name}" + (f"@{key.node}" if key.node else "")
        made = SimulatedActor(self.nodes, key, client, node)
        self.nodes.actors.append(made)
        self.nodes.world.loop.call_later(
            random.uniform(*START_S), self._make, made, args, context=made.context.copy()
        )
        return SimulatedActorRef(made)

    def _make(self, made: SimulatedActor, args: tuple[Any, ...]) -> None:
        made.instance = CLASSES[made.key.kind](*args)
        made.instance.runtime = self
        made.up.set()

    def kill(self, ref: SimulatedActorRef, info: ActorInfo | None) -> None:
        found = ref.actor
        if found.frozen and (info is None or found.node != self.own_node):
            found.doomed = True
        else:
            found.end(Death("its process is gone"))

    def is_running(self, pid: int) -> bool:
        found = self.nodes.with_pid(pid)
        return found is not None and not found.frozen

    def why_not_placed(self, key: ActorKey) -> str:
        return f"{key} needs a process"

    def request_resources(self, workers: int) -> None:
        pass


class SimulatedCallRecord:
    """The calls that a worker has in hand, kept after its death."""

    descriptor = None

    def __init__(self) -> None:
        self._of = ACTOR.get()
        self._calls: dict[Any, CallInHand] = {}
        self.ended = ""
        self._of.call_record = self  # type: ignore[attr-defined]

    @classmethod
    def of_this_process(cls) -> SimulatedCallRecord:
        return cls()

    def call_began(self, partition: TopicPartition, first: int, last: int, call: Any = None) -> None:
        if self._of.alive:
            self._calls[call or partition] = CallInHand(partition, first, last)

    def call_ended(self, partition: TopicPartition, call: Any = None) -> None:
        if self._of.alive:
            self._calls.pop(call or partition, None)

    def report(self) -> CrashReport:
        """The record as another process of the node reads it."""
        return CrashReport(list(self._calls.values()), self.ended)


class _InOneLoop:
    """Methods of a job's actor that ask the operating system or Ray."""

    async def whereabouts(self) -> bytes:
        own = ACTOR.get()
        return pack(ActorInfo(own.pid, own.node))

    async def quit(self) -> None:
        ACTOR.get().end(Death("it ended"))
        await asyncio.Event().wait()


class SimulatedMetadataActor(_InOneLoop, metadata_actor.MetadataActor):
    """The metadata actor without a process."""


class SimulatedCoordinatorActor(_InOneLoop, coordinator_actor.CoordinatorActor):
    """The coordinator actor without a process."""


class SimulatedWorkerActor(_InOneLoop, worker_actor.WorkerActor):
    """A worker actor without a process."""


class SimulatedConnectionActor(_InOneLoop, connection_actor.ConnectionActor):
    """A connection actor without a process, and without shared memory."""

    async def shared_memory_name(self) -> str | None:
        return None

    async def crash_report(self, worker: str) -> bytes | None:
        own = ACTOR.get()
        for found in own.nodes.actors:
            of_job = found.client.partition("/")[0] == own.client.partition("/")[0]
            if of_job and found.client.endswith(f"/{worker}") and found.node == own.node:
                record = getattr(found, "call_record", None)
                return None if record is None else pack(record.report())
        return None


CLASSES: dict[str, Callable[..., Any]] = {
    "metadata": SimulatedMetadataActor,
    "coordinator": SimulatedCoordinatorActor,
    "connection": SimulatedConnectionActor,
    "spare": SimulatedConnectionActor,
    "worker": SimulatedWorkerActor,
}


@contextmanager
def simulated_actors(world: World, nodes: SimulatedNodes, events: Callable[[Any], None]) -> Iterator[None]:
    """Has actors' classes ask the simulation where they would ask the operating system, for the time of a run. `events` gets what
    coordinators and workers publish."""

    def process_runs(pid: int) -> bool:
        found = nodes.with_pid(pid)
        return found is not None and not found.frozen

    def end_process(pid: int) -> None:
        if (found := nodes.with_pid(pid)) is not None:
            found.end(Death("its process is gone"))

    lockstep = world.loop.lockstep
    threads = SimpleNamespace(
        Condition=lambda: LockstepCondition(lockstep),
        Lock=threading.Lock,
        Thread=lockstep.thread,
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (processing_thread, thread_callers):
            patch.setattr(module, "threading", threads)
            patch.setattr(module, "ThreadWakeup", lambda: LockstepWakeup(lockstep))
        patch.setattr(shared_records, "threading", threads)
        patch.setattr(actor, "process_runs", process_runs)
        patch.setattr(actor, "end_process", end_process)
        patch.setattr(worker_actor, "CallRecord", SimulatedCallRecord)
        patch.setattr(worker_actor, "log_event", events)
        patch.setattr(coordinator_actor, "log_event", events)
        for module in (metadata_actor, coordinator_actor, connection_actor, worker_actor):
            patch.setattr(module, "set_up_process", lambda setup: None)
        yield
