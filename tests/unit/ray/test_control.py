"""A job actor as whoever controls it sees it; its processes as /proc shows them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

from kafka_actors.base.io_thread import IoThread
from kafka_actors.errors import DisconnectedError, JobFailed, KafkaTimeoutError, UsageError
from kafka_actors.ray import control as control_module
from kafka_actors.ray import running_job
from kafka_actors.ray.actors.actor import process_runs
from kafka_actors.ray.control import ActorControl, LocalControl
from kafka_actors.ray.running_job import RunningJob


def job_actor(**answers):
    """A job actor: what `ray.get` is asked for at a call is the answer to it."""
    return SimpleNamespace(
        **{
            method: SimpleNamespace(remote=lambda *args, answer=answer: answer)
            for method, answer in answers.items()
        }
    )


@pytest.mark.parametrize("answers", [[], [True], [False]], ids=["gone", "confirmed", "unconfirmed"])
def test_a_job_actor_that_is_gone_has_confirmed_what_it_said_before(monkeypatch, answers):
    """At the first call nobody has."""

    def get(answer, timeout):
        if not left:
            raise RayActorError
        return left.pop()

    left = list(answers)
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get, kill=lambda holder: None))
    control = ActorControl(job_actor(stop=None, starting=None), "nightly")
    for _ in range(3):
        assert control.stop(1.0, leave=True) is (answers == [True])


@pytest.fixture
def killable(monkeypatch):
    """Ray, where an actor that is killed answers no more; an answer that is an error is raised. Returns the killed ones."""

    def get(answer, timeout):
        if killed:
            raise RayActorError
        if isinstance(answer, BaseException):
            raise RayTaskError("wait", "", answer)
        return answer

    killed = []
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get, kill=killed.append))
    return killed


def test_who_stopped_a_detached_job_keeps_its_end_as_of_one_in_the_driver(killable):
    actor = job_actor(time_to_stop=30.0, stop=False, starting="the last status", wait=True)
    job = RunningJob(ActorControl(actor, "nightly"))
    assert job.stop() is False
    assert len(killable) == 1
    assert job.stop() is False
    assert job.status() == "the last status"
    job.wait(timeout=1)
    for refused in (job.pause, lambda: job.scale(2)):
        with pytest.raises(UsageError, match="the job has ended"):
            refused()
    assert len(killable) == 1


def test_who_stopped_a_detached_job_that_had_failed_is_told_why_at_each_wait(killable):
    failed = JobFailed(ValueError("no good"))
    actor = job_actor(time_to_stop=30.0, stop=True, starting="failed", wait=failed)
    job = RunningJob(ActorControl(actor, "nightly"))
    job.stop()
    for _ in range(2):
        with pytest.raises(JobFailed, match="no good"):
            job.wait()


def test_a_detached_job_that_is_stopped_without_a_timeout_has_the_time_that_it_drains(monkeypatch):
    passed, waited = [], []

    def get(answer, timeout):
        waited.append(timeout)
        return answer

    actor = job_actor(time_to_stop=66.0, starting=None, wait=True)
    actor.stop = SimpleNamespace(remote=lambda *args: passed.append(args) or True)
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get, kill=lambda holder: None))
    assert ActorControl(actor, "nightly").stop(None, leave=True)
    assert passed == [(66.0, True)]
    assert waited[1] == pytest.approx(66.0 + control_module.CONTROL_S, abs=1.0)


def test_a_user_s_error_in_the_job_actor_is_raised_as_that_of_a_job_in_the_driver(killable):
    """The start of a detached job raises what a constructor raised."""
    control = ActorControl(job_actor(), "nightly")
    with pytest.raises(ValueError, match=r"^no good$") as raised:
        control.result("begin", ValueError("no good"), None)
    assert isinstance(raised.value.__cause__, RayTaskError), "where it was raised"


def test_another_thread_that_waits_for_a_detached_job_while_it_is_stopped_finds_it_ended(killable):
    """The job actor may be gone before it has answered."""
    control = ActorControl(job_actor(stop=True, starting="the last status", wait=True), "nightly")
    asked = control.call

    def stopped_meanwhile(method, *args, **more):
        control.call = asked
        control.stop(1.0, leave=True)
        return asked(method, *args, **more)

    control.call = stopped_meanwhile
    assert control.wait(None) is True


def test_a_detached_job_that_others_have_stopped_is_named_and_said_to_have_ended(killable):
    killable.append("by others")
    job = RunningJob(ActorControl(job_actor(wait=True, status=None, scale=None), "nightly"))
    for call in (job.status, job.wait, lambda: job.scale(2)):
        with pytest.raises(
            DisconnectedError, match="the job 'nightly' has ended: its actor is gone, and with it its status"
        ):
            call()


def test_of_a_detached_job_that_did_not_answer_its_stop_nothing_is_known(monkeypatch):
    def get(answer, timeout):
        raise RayActorError if killed else GetTimeoutError

    killed = []
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get, kill=killed.append))
    job = RunningJob(ActorControl(job_actor(stop=True, status=None), "nightly"))
    assert job.stop(timeout=0) is False
    with pytest.raises(DisconnectedError, match="the job 'nightly' has ended"):
        job.status()
    job.wait(timeout=1)


def test_a_detached_job_whose_actor_can_not_be_reached_for_a_while_is_stopped_then(monkeypatch):
    """It isn't gone: it would run on, and whoever stopped it would be told that nobody can say."""

    def get(answer, timeout):
        if unreachable:
            unreachable.pop()
            raise ActorUnavailableError("the connection broke", b"0" * 16)
        return True

    killed, unreachable = [], [1, 2]
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get, kill=killed.append))
    clock = iter(range(10_000))
    monkeypatch.setattr(
        control_module,
        "time",
        SimpleNamespace(monotonic=lambda: next(clock) / 10, sleep=lambda seconds: None),
    )
    actor = job_actor(stop=True, starting=None, wait=True)
    assert ActorControl(actor, "nightly").stop(
        1.0, leave=True
    )  # 11 seconds at most, with the time of the answer
    assert killed == [actor]
    unreachable += [1] * 3
    assert ActorControl(actor, "nightly").wait(None)
    unreachable += [1] * 1000
    with pytest.raises(KafkaTimeoutError, match=r"did not answer 'wait' within 0\.1 s"):
        ActorControl(actor, "nightly").call("wait", 0.1, limit_s=0.1)


def test_a_wait_goes_on_while_the_job_actor_does_not_answer(monkeypatch):
    """The job goes on, while Ray's own services, or the node of its supervisor, stand still; the time of the wait counts as it is."""

    def get(answer, timeout):
        nonlocal now
        now += timeout
        if silent and now < silent:
            raise GetTimeoutError
        return True

    now, silent = 0.0, 100.0
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get))
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(control_module, "time", clock)
    monkeypatch.setattr(running_job, "time", clock)
    actor = job_actor(wait=True)
    job = running_job.RunningJob(ActorControl(actor, "nightly"), stop_at_exit=False)
    with pytest.raises(KafkaTimeoutError, match="the job still runs after 15 s"):
        job.wait(timeout=15)
    assert now < 15 + 2 * control_module.CONTROL_S
    job.wait()
    assert now >= silent


def test_a_job_is_taken_down_though_its_supervisors_loop_stands_still(monkeypatch):
    """A call of Ray that blocks holds the loop: whoever stops the job gets no error of a wait, and Ray is left."""
    warned, goes_on, steps = [], threading.Event(), []

    def warning(text, *values):
        warned.append(text % values)
        if "status page" in text:
            goes_on.set()

    async def stop(timeout_s, leave):
        asyncio.get_running_loop().call_soon(goes_on.wait)
        await asyncio.Event().wait()

    async def close():
        steps.append("page closes")

    async def status():
        raise AssertionError("nobody runs it any more")

    class Supervisor(SimpleNamespace):
        def __repr__(self):
            return "job of group 'g'"

    report = SimpleNamespace(shown=lambda: "the last status", confirmed=False)
    supervisor = Supervisor(stop=stop, status=status, report=report)
    monkeypatch.setattr(control_module, "LOOP_S", 0.1)
    monkeypatch.setattr(control_module, "CLOSE_S", 0.1)
    monkeypatch.setattr(control_module.logger, "warning", warning)
    process = SimpleNamespace(supervisor=supervisor, close=close)
    thread = IoThread("supervisor")
    control = LocalControl(process, thread, None, lambda: steps.append("Ray is left"))
    assert control.stop(0.0, True) is False
    assert [each.partition(":")[0] for each in warned] == [
        "job of group 'g' did not stop within 0.0 s",
        "job of group 'g'",
    ]
    assert steps[-1] == "Ray is left"
    assert not thread.alive
    assert control.status() == "the last status"


def test_a_process_that_is_stopped_does_not_run_but_one_that_a_debugger_holds_does():
    for traced, runs in ((False, False), (True, True)):
        ask = "import ctypes; assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0; " if traced else ""
        child = subprocess.Popen(
            [sys.executable, "-c", f"{ask}import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]
        )
        try:
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            with open(f"/proc/{child.pid}/stat") as stat:
                assert stat.read().rpartition(")")[2].split()[0] == ("t" if traced else "T")
            assert process_runs(child.pid) is runs
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        assert not process_runs(child.pid)
