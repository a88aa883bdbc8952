"""A place where actors run without Ray and without processes: a `Runtime` for the supervisor and what it is made of."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

from kafka_actors.errors import DisconnectedError
from kafka_actors.job.actor_setup import ConnectionWanted, Topology
from kafka_actors.job.messages import ActorInfo, CoordinatorStatus, JobStart, WorkerPong, pack
from kafka_actors.job.status import GroupState
from kafka_actors.job.supervisor.machines.supervision import ActorKey


class FakeActor:
    """A live actor. Calls of a method in the runtime's `lost` fail that often, and reach it or not."""

    raw = None

    def __init__(self, runtime: FakeRuntime, key: ActorKey, name: str, node: str) -> None:
        self.runtime, self.key, self.name = runtime, key, name
        self.info = ActorInfo(next(runtime.pids), node)
        self.calls: Counter[str] = Counter()
        self.told: dict[str, tuple[Any, ...]] = {}
        self.ended = asyncio.get_running_loop().create_future()

    async def call(self, method: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        if self.ended.done():
            raise DisconnectedError("it is dead")
        if self.key in self.runtime.without_place:
            await asyncio.Event().wait()
        if self.runtime.lost[self.key.kind, method] > 0:
            self.runtime.lost[self.key.kind, method] -= 1
            raise DisconnectedError("lost")
        self.calls[method] += 1
        self.told[method] = args
        if (instead := self.runtime.instead.get((self.key.kind, method))) is not None:
            return await instead(self, *args)
        match method:
            case "whereabouts":
                return pack(self.info)
            case "topology":
                _, nodes = self.told.get("set_nodes", (0, ()))
                return pack(Topology(1, [ConnectionWanted(node, 7, "h", 9092) for node in nodes]))
            case "job_start":
                return pack(JobStart([], None))
            case "ping" if self.key.kind == "worker":
                return pack(WorkerPong(10**6, self.runtime.busy_s, True))
            case "ping":
                return b""
            case "runs":
                return self.runtime.runs
            case "crash_report":
                return self.runtime.words
            case "status":
                return pack(CoordinatorStatus(GroupState("stable", 1, "m", None, 0, 1), [], {}, False, 0, 0))
        return None

    async def died(self) -> Any:
        return await asyncio.shield(self.ended)


class FakeRuntime:
    """Place where actors run: those without a node of their own on `node`. `instead` has methods of a kind of actor, run in place of
    answering. Those in `without_place` never come up."""

    own_node = "here"

    def __init__(self, node: str = "far") -> None:
        self.node = node
        self.lost: Counter[tuple[str, str]] = Counter()
        self.instead: dict[tuple[str, str], Any] = {}
        self.without_place: set[ActorKey] = set()
        self.pids = itertools.count(100)
        self.made: list[FakeActor] = []
        self.killed: list[str] = []
        self.runs = True
        self.words: bytes | None = None
        self.busy_s: float | None = None

    def create(self, key: ActorKey, name: str, args: tuple[Any, ...]) -> FakeActor:
        node = key.node or ("here" if key.kind in ("metadata", "coordinator") else self.node)
        self.made.append(FakeActor(self, key, name, node))
        return self.made[-1]

    def kill(self, ref: FakeActor, info: ActorInfo | None) -> None:
        self.killed.append(ref.name)

    def is_running(self, pid: int) -> bool:
        return True

    def why_not_placed(self, key: ActorKey) -> str:
        return f"{key} needs num_gpus=1"

    def request_resources(self, workers: int) -> None:
        pass

    def last(self, kind: str) -> FakeActor:
        return [actor for actor in self.made if actor.key.kind == kind][-1]
