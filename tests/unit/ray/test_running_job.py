"""`RunningJob`: waiting, and signals meanwhile."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.base.io_thread import IoThread
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.ray.control import ActorControl, LocalControl
from kafka_actors.ray.running_job import RunningJob


def test_who_waits_in_another_thread_too_leaves_the_signals_to_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            running.wait(timeout=0)
        except BaseException as error:
            raised.append(error)

    class Ending:
        """A job that goes on until somebody has waited for it in another thread."""

        def wait(self, timeout: float | None) -> bool:
            if threading.current_thread() is not threading.main_thread():
                return False
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return True

    running = RunningJob(Ending())  # type: ignore[arg-type]
    running.wait()
    assert signal.getsignal(signal.SIGTERM) is before
    assert [type(error) for error in raised] == [KafkaTimeoutError]


@pytest.mark.parametrize("timeout", [0, 0.3, None])
def test_a_signal_in_the_last_moment_of_a_wait_stops_the_job_nevertheless(timeout: float | None) -> None:
    """A program that waits again and again, to say something in between, would wait on for ever."""
    stopped: list[float | None] = []

    class Running:
        """A job that runs on; the last wait, or the third one, is interrupted by a signal."""

        def wait(self, timeout: float | None) -> bool:
            pieces.append(timeout)
            if len(pieces) == last:
                signal.raise_signal(signal.SIGTERM)
            return False

        def stop(self, timeout: float | None, leave: bool) -> bool:
            stopped.append(timeout)
            return True

    pieces: list[float | None] = []
    last = {0: 1, 0.3: 2, None: 3}[timeout]
    RunningJob(Running()).wait(timeout=timeout)  # type: ignore[arg-type]
    assert stopped == [None], "the job knows for how long it drains"


def test_the_end_of_a_with_block_leaves_the_job_the_time_that_it_drains() -> None:
    stopped: list[float | None] = []

    class Running:
        def stop(self, timeout: float | None, leave: bool) -> bool:
            stopped.append(timeout)
            return True

        def wait(self, timeout: float | None) -> bool:
            return True

    with RunningJob(Running()) as running:  # type: ignore[arg-type]
        pass
    running.stop(timeout=3)
    assert stopped == [None, 3]


@pytest.mark.parametrize("when", ["it waits", "it begins"])
def test_calls_end_where_another_thread_stops_the_job(when: str) -> None:
    for call in ("status", "wait", "pause"):
        thread = IoThread("test")

        async def endless(*_: object) -> None:
            await asyncio.Event().wait()

        supervisor = SimpleNamespace(
            status=endless, ended_within=endless, pause=endless, result=lambda: "result"
        )
        control = LocalControl(SimpleNamespace(supervisor=supervisor), thread, None, lambda: None)  # type: ignore[arg-type]
        submit = thread.submit

        def stopped_beside(
            work: Any, thread: Any = thread, control: Any = control, submit: Any = submit
        ) -> Any:
            future = submit(work) if when == "it waits" else None
            control._last, control._stopped = "last", True
            thread.stop()
            return future or submit(work)

        thread.submit = stopped_beside  # type: ignore[method-assign]
        if call == "pause":
            with pytest.raises(UsageError, match="the job has ended"):
                control.pause(True)
        else:
            found = control.status() if call == "status" else control.wait(None)
            assert found == {"status": "last", "wait": "result"}[call]


def test_a_stop_that_takes_too_long_takes_the_job_down_though_its_coordinator_does_not_answer() -> None:
    """The job may be ending by itself, with more time than who stops it gives it."""
    steps: list[str] = []

    async def endless(*_: object) -> None:
        await asyncio.Event().wait()

    async def close() -> None:
        steps.append("page")

    report = SimpleNamespace(shown=lambda: "shown", confirmed=False)
    supervisor = SimpleNamespace(stop=endless, status=endless, report=report)
    thread = IoThread("test")
    process = SimpleNamespace(supervisor=supervisor, close=close)
    control = LocalControl(process, thread, None, lambda: steps.append("Ray"))  # type: ignore[arg-type]
    assert not control.stop(-0.95, leave=True)  # the second for a stop that is as good as over is added
    assert (steps, control.status(), thread.alive) == (["page", "Ray"], "shown", False)


@pytest.mark.parametrize(("timeout", "passed"), [(None, 66.0), (7.0, 7.0)])
def test_a_stop_without_a_timeout_has_the_time_that_the_supervisor_says(
    timeout: float | None, passed: float
) -> None:
    asked: list[float] = []

    async def stop(timeout_s: float, leave: bool) -> bool:
        asked.append(timeout_s)
        return True

    async def close() -> None: ...

    report = SimpleNamespace(shown=lambda: "shown", confirmed=True)
    process = SimpleNamespace(
        supervisor=SimpleNamespace(stop=stop, report=report, time_to_stop=66.0), close=close
    )
    control = LocalControl(process, IoThread("test"), None, lambda: None)  # type: ignore[arg-type]
    assert control.stop(timeout, leave=True)
    assert asked == [passed]


def test_a_running_job_is_shown_in_one_line_without_asking_it() -> None:
    control = LocalControl.__new__(LocalControl)
    control._supervisor = SimpleNamespace(  # type: ignore[assignment]
        plan=SimpleNamespace(config=SimpleNamespace(group_id="scorer")),
        report=SimpleNamespace(state="running"),
    )
    assert repr(RunningJob(control)) == "<RunningJob of group 'scorer', running>"
    detached = ActorControl(None, "nightly")  # type: ignore[arg-type]
    assert repr(RunningJob(detached)) == "<RunningJob 'nightly', detached>"
