"""The base of a job's actors: methods that run once however often they are called, and what is known of processes on the same node."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from fakes.loop import in_loop

from kafka_actors.job.messages import ActorInfo, unpack
from kafka_actors.ray.actors import actor
from kafka_actors.ray.actors.actor import ActorShell, end_process, once, process_runs, resource_of


class OnceActor(ActorShell):
    """An actor whose `begin` waits for the test."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    @once
    async def begin(self, name: str) -> str:
        """Begins."""
        self.begun.append(name)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return f"{name} has begun"


@in_loop
async def test_a_call_that_is_made_again_gets_the_result_of_the_first() -> None:
    made = OnceActor()
    first, again = (asyncio.ensure_future(made.begin(name)) for name in ("first", "again"))
    await asyncio.sleep(0)
    first.cancel()  # Ray has lost its answer
    made.go_on.set()
    assert await again == "first has begun"
    assert await made.begin("late") == "first has begun"
    assert made.begun == ["first"]
    assert OnceActor.begin.__doc__ == "Begins."


@in_loop
async def test_an_error_is_every_callers() -> None:
    made, other = OnceActor(), OnceActor()
    made.error = ValueError("no")
    made.go_on.set()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await made.begin("x")
    other.go_on.set()
    assert await other.begin("y") == "y has begun", "each object has its own"


@in_loop
async def test_live_ends_with_its_process_only() -> None:
    waiting = asyncio.ensure_future(ActorShell().live())
    await asyncio.wait([waiting], timeout=0)
    assert not waiting.done()
    waiting.cancel()


def test_an_actor_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(get_node_id=lambda: "node-1", get_job_id=lambda: "01")
    monkeypatch.setattr(actor.ray, "get_runtime_context", lambda: context)
    assert unpack(asyncio.run(ActorShell().whereabouts()), ActorInfo) == ActorInfo(os.getpid(), "node-1")
    assert resource_of("g", "", "worker-0.1") == {
        "messaging.consumer.group.name": "g",
        "service.instance.id": "g/worker-0.1",
        "ray.job.id": "01",
        "ray.node.id": "node-1",
    }
    assert resource_of("g", "scorer", "worker-0.1")["service.instance.id"] == "scorer/worker-0.1"


def test_a_process_that_is_stopped_or_gone_does_not_run_and_another_ones_is_never_ended() -> None:
    """Only Ray's processes have `ray::` in their command line: a pid may be another process's by now."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ours = subprocess.Popen([sys.executable, "-c", "input() # ray::Worker"], stdin=subprocess.PIPE)
    try:
        assert process_runs(os.getpid())
        assert process_runs(child.pid)
        end_process(child.pid)
        assert child.poll() is None
        os.kill(ours.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, ours.pid, os.WSTOPPED | os.WNOWAIT)
        assert not process_runs(ours.pid)
        end_process(ours.pid)
        os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
        assert not process_runs(ours.pid), "it is dead, and nobody has waited for it"
        assert ours.wait() == -signal.SIGKILL
        assert not process_runs(ours.pid)
        end_process(ours.pid)  # nothing happens
    finally:
        for process in (child, ours):
            process.kill()
            process.communicate()
