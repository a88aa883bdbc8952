"""A job actor as whoever controls it sees it; its processes as /proc shows them."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from ray.exceptions import RayActorError

from kafka_actors.ray import control as control_module
from kafka_actors.ray.actors.actor import process_runs
from kafka_actors.ray.control import ActorControl


@pytest.mark.parametrize("answers", [[], [True], [False]], ids=["gone", "confirmed", "unconfirmed"])
def test_a_job_actor_that_is_gone_has_confirmed_what_it_said_before(monkeypatch, answers):
    """At the first call nobody has."""

    def get(answer, timeout):
        if not left:
            raise RayActorError
        return left.pop()

    left = list(answers)
    monkeypatch.setattr(control_module, "ray", SimpleNamespace(get=get, kill=lambda holder: None))
    control = ActorControl(SimpleNamespace(stop=SimpleNamespace(remote=lambda *args: None)), "nightly")
    for _ in range(3):
        assert control.stop(1.0, leave=True) is (answers == [True])


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
