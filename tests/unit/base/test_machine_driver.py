"""The loop over machines: turns, wake-ups, waits, crashes."""

from __future__ import annotations

import asyncio

import pytest
from fakes.loop import in_loop, turns

from kafka_actors.base.machine import Ready
from kafka_actors.base.machine_driver import MachineDriver


class Script:
    """A machine that says what it was given, once, and wakes as it is told."""

    def __init__(self, *ready: Ready) -> None:
        self.ready = list(ready)
        self.polled: list[float] = []

    def poll(self, now: float) -> Ready:
        self.polled.append(now)
        return self.ready.pop(0) if self.ready else Ready()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_machine_is_polled_in_turn_and_its_actions_come_before_its_events():
    done = []
    driver = MachineDriver(lambda: 5.0, after_poll=lambda: done.append("after"))
    first, second = Script(Ready(("a", "b"), ("happened",))), Script(Ready(("c",)))
    driver.add(first, lambda a: done.append(f"do {a}"), lambda e: done.append(f"say {e}"))
    driver.add(second, lambda a: done.append(f"do {a}"))
    driver.poll()
    assert done == ["do a", "do b", "say happened", "do c", "after"]
    assert first.polled == second.polled == [5.0]


@in_loop
async def test_it_polls_again_at_the_earliest_wake_up_and_when_it_is_woken():
    clock = Clock()
    driver = MachineDriver(clock)
    late, early = Script(Ready(next_wake=10_000.0)), Script(Ready(next_wake=100.0), Ready(next_wake=None))
    driver.add(late, lambda a: None)
    driver.add(early, lambda a: None)
    driver.start()
    assert await driver.until(lambda: len(early.polled) == 2, 10.0)  # its time had come already
    await turns(5)
    assert len(early.polled) == 2  # and none is due
    clock.now = 101.0
    driver.wake()
    assert await driver.until(lambda: len(late.polled) == 3, 10.0)
    assert late.polled[-1] == 101.0
    await driver.stop()
    assert not driver.running


@in_loop
async def test_a_machine_that_is_always_due_does_not_starve_other_tasks():
    driver = MachineDriver(lambda: 1.0)
    driver.add(Script(*[Ready(next_wake=0.0)] * 1_000_000), lambda a: None)
    driver.start()
    await turns(10)
    await driver.stop()


@in_loop
async def test_a_wait_ends_with_its_time_and_is_over_at_once_where_its_condition_holds():
    driver = MachineDriver(lambda: 1.0)
    assert not await driver.until(lambda: False, 0.0)
    assert await driver.until(lambda: True, 0.0)
    assert await driver.until(lambda: True, None)


@in_loop
async def test_a_turn_by_hand_is_seen_by_those_who_wait():
    driver = MachineDriver(lambda: 1.0)
    machine = Script()
    driver.add(machine, lambda a: None)
    waiting = asyncio.ensure_future(driver.until(lambda: bool(machine.polled), None))
    await turns(3)
    assert not waiting.done()
    driver.poll()
    assert await waiting


@in_loop
async def test_an_exception_of_a_turn_is_the_end_and_those_who_wait_see_it():
    errors: list[Exception] = []
    driver = MachineDriver(lambda: 1.0, on_crash=errors.append)
    machine = Script(Ready(("action",)))
    driver.add(machine, lambda a: 1 / 0)
    waiting = asyncio.ensure_future(driver.until(lambda: driver.crashed, None))
    driver.start()
    assert await waiting
    driver.wake()
    await turns(3)
    assert [type(e) for e in errors] == [ZeroDivisionError]
    assert len(machine.polled) == 1
    await driver.stop()


@in_loop
async def test_run_raises_the_exception_where_nobody_else_takes_it():
    driver = MachineDriver(lambda: 1.0)
    driver.add(Script(Ready(("action",))), lambda a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await driver.run()


@in_loop
async def test_a_turn_by_hand_sets_the_loops_alarm_anew_and_makes_no_other_turn():
    clock = Clock()
    driver = MachineDriver(clock)
    machine = Script(Ready(), Ready(next_wake=100.5), Ready())
    driver.add(machine, lambda a: None)
    driver.start()
    assert await driver.until(lambda: len(machine.polled) == 1, 10.0)
    driver.poll()
    await turns(5)
    assert len(machine.polled) == 2
    assert await driver.until(lambda: len(machine.polled) == 3, 10.0)
    await driver.stop()
