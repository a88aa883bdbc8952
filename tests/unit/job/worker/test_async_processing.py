"""An async class of the user's: its calls, its flush and its close have one event loop; a worker that ends cancels its calls."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest
from fakes.loop import turns
from fakes.worker import Scene

from kafka_actors.job.worker.async_processing import CallLoop
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.user_function import FunctionSpec


class LoopOfUvloop(asyncio.SelectorEventLoop):
    """Stands for the loop of a package that is perhaps not installed here."""


@pytest.mark.parametrize(
    ("allowed", "installed", "used"), [(None, True, True), ("0", True, False), (None, False, False)]
)
def test_calls_have_the_loop_of_uvloop_where_it_is_installed_and_ray_may_use_it(
    monkeypatch, allowed, installed, used
):
    there = SimpleNamespace(new_event_loop=LoopOfUvloop) if installed else None
    monkeypatch.setitem(sys.modules, "uvloop", there)
    monkeypatch.delenv("RAY_USE_UVLOOP", raising=False)
    if allowed is not None:
        monkeypatch.setenv("RAY_USE_UVLOOP", allowed)
    calls = CallLoop(SimpleNamespace(close=lambda run: None))
    serving = threading.Thread(target=calls.serve)
    serving.start()
    made = type(calls.loop)
    calls.stop()
    serving.join()
    assert (made is LoopOfUvloop) == used


class Told:
    """What instances of a class made in the test do, which the worker makes by itself."""

    scene = None
    loops = []

    def tell(self, what):
        self.tasks.append(asyncio.get_running_loop())
        self.scene.happens(what)


def played(target, steps, on_error="fail"):
    async def play():
        scene = target.scene = Scene(FunctionSpec(target, "batch", 0, on_error, OutputsSpec((), None)))
        target.tasks = []
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, said: complaints.append(said))
        await scene.worker.start()
        try:
            await steps(scene)
        finally:
            await scene.worker.close()
        assert complaints == []
        return scene.seen

    return asyncio.run(play())


class Pool(Told):
    async def __call__(self, batch):
        self.tell("called")

    async def flush(self):
        await asyncio.sleep(0)
        self.tell("flushed")

    async def close(self):
        await asyncio.sleep(0)
        self.tell("closed")


def test_calls_flush_and_close_are_awaited_in_one_loop():
    seen = played(Pool, lambda scene: scene.until("committed [103]"))
    assert seen == ["called", "flushed", "committed [103]", "closed"]
    assert len(set(Pool.tasks)) == 1


class Stuck(Told):
    async def __call__(self, batch):
        self.tell("called")
        try:
            await asyncio.Event().wait()
        finally:
            await turns(3)  # a second cancel would cut this short
            self.tell("cleaned up")

    def close(self):
        self.scene.happens("closed")
        asyncio.run(asyncio.sleep(0))  # as on a thread without a loop


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_call_in_hand_is_cancelled_when_the_worker_ends_and_counts_neither_as_done_nor_as_failed(on_error):
    seen = played(Stuck, lambda scene: scene.until("called"), on_error)
    assert seen == ["called", "cleaned up", "closed"]


class Impatient(Told):
    async def __call__(self, batch):
        inner = asyncio.ensure_future(asyncio.sleep(10))
        inner.cancel()
        await inner


def test_what_only_the_function_cancelled_is_an_error_of_its_own():
    assert played(Impatient, lambda scene: scene.until("failed")) == ["failed"]
    seen = played(Impatient, lambda scene: scene.until("committed [103]"), "skip")
    assert seen == ["committed [103]"]
