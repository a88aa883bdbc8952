"""Waits of tests: what they wait for by which clock, and what they say when it does not come."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import waiting
from waiting import MOST_S, SLOWEST, at_pace_s, output_of, slow_s, until, until_async, until_ended, within


class Machine:
    """A clock that sleeping moves on, at a pace of two."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def since(self, at):
        return 2.0

    def quiet_s(self, since, to):
        return (to - since) / 2


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(waiting, "this_run", lambda: made)
    return made


def test_a_wait_lasts_as_long_as_the_machine_is_slow(machine):
    until(lambda: machine.now > 119, 10)
    with pytest.raises(AssertionError, match=r"^not within 10 s: it\n3 of 4$"):
        until(lambda: False, 10, "it", shown=lambda: "3 of 4")
    assert 139 < machine.now < 140


def test_a_wait_in_an_event_loop_lasts_as_long(machine, monkeypatch):
    import asyncio

    async def sleep(seconds):
        machine.sleep(seconds)

    monkeypatch.setattr(waiting.asyncio, "sleep", sleep)
    asyncio.run(until_async(lambda: machine.now > 119, 10))
    with pytest.raises(AssertionError, match="not within 10 s: the condition"):
        asyncio.run(until_async(lambda: False, 10))


def test_a_process_that_does_not_end_is_shown_with_its_log(machine):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(AssertionError, match=rf"the end of process {process.pid}\nit hangs$"):
            until_ended(process, 5, lambda: "it hangs")
        process.communicate(b"\n")
    assert until_ended(process, 5, lambda: "") == 0


def test_a_process_that_hangs_is_shown_with_what_it_wrote_and_where_it_stands(monkeypatch):
    monkeypatch.setattr(waiting, "slow_s", lambda seconds: 0.01)
    hangs = "import threading; print('begun', flush=True); threading.Event().wait()"
    command = [sys.executable, "-X", "faulthandler", "-c", hangs]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(
            AssertionError, match=r"(?s)^not within 0\.01 s: the end of process .* in <module>\n"
        ):
            output_of(process, 5)


def test_a_promise_is_held_in_seconds_of_a_quiet_machine(machine):
    with within(5):
        machine.sleep(10)
    with pytest.raises(AssertionError, match=r"took 5\.5 s of a quiet machine, not 5"), within(5):
        machine.sleep(11)


def test_timeouts_of_others_hold_on_a_slow_machine_and_end_before_the_test_is_ended(machine):
    assert slow_s(5) == 5 * SLOWEST
    assert slow_s(10_000) == MOST_S
    settings = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    assert settings["tool"]["pytest"]["ini_options"]["timeout"] > MOST_S
    assert at_pace_s(10) == 20
