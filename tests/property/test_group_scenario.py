"""Faults in a simulated group's run: which are a member's, and which its user's, or of the machine that it stands on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from simulation.group_scenario import SESSION_S, UNREAD_S, ZOMBIE_S, GroupRun
from simulation.schedule import Schedule
from simulation.world import Simulation

from kafka_actors.types import TopicPartition

TP = TopicPartition("t1", 0)
SILENT_S = SESSION_S + ZOMBIE_S
"""Seconds for which brokers may hear nothing of a member that owns partitions."""


def found_in(*steps: tuple[float, Any], stalls: bool = False) -> list[list[str]]:
    """Has a member own a partition of which brokers hear nothing, and does the steps, each at its time. Returns what was found by then."""
    with Simulation(seed=1) as world:
        run = GroupRun(world, Schedule("group", 1, ()))
        member: Any = SimpleNamespace(client="m1.1", running=True, stalls=stalls, assignment={TP})
        run.members = [member]
        found = []

        async def live() -> None:
            began = world.loop.time()
            run.checks.heard[member.client] = began
            for at, step in steps:
                await asyncio.sleep(began + at - world.loop.time())
                step(run, member)
                run.check_owners()
                found.append([text.partition(" after ")[0] for text in run.checks.failures])
                run.checks.failures.clear()

        world.run(live(), within=300.0)
        return found


def frozen_for(seconds: float) -> Any:
    return lambda run, member: run.freeze(member, seconds)


def look(run: Any, member: Any) -> None:
    """Does nothing: owners are looked at behind each step."""


TOLD = [f"m1.1 owns partitions {SILENT_S + 0.5:.1f} s"]


def test_a_member_that_keeps_its_partitions_while_brokers_hear_nothing_of_it_is_found() -> None:
    assert found_in((SILENT_S - 0.5, look), (SILENT_S + 0.5, look)) == [[], TOLD]


def test_a_member_that_stands_still_is_expected_to_give_them_up_once_it_goes_on() -> None:
    steps = (1.0, frozen_for(18.0)), (18.5, look), (19.0 + SILENT_S + 0.5, look)
    assert found_in(*steps) == [[], [], TOLD]


@pytest.mark.parametrize("shorter_s", [0.2, 5.0])
def test_a_second_freeze_thaws_the_first_no_sooner_and_excuses_no_longer(shorter_s: float) -> None:
    """Seed 102051: brokers heard nothing of it because it stood still."""
    steps = (1.0, frozen_for(18.0)), (2.0, frozen_for(shorter_s)), (18.5, look), (19.0 + SILENT_S + 0.5, look)
    assert found_in(*steps) == [[], [], [], TOLD]
    longer = (1.0, frozen_for(2.0)), (2.0, frozen_for(30.0)), (3.0 + SILENT_S + 0.5, look)
    assert found_in(*longer) == [[], [], TOLD]


def test_a_member_whose_user_stalls_is_told_of_lost_partitions_only_when_it_polls() -> None:
    assert found_in((SILENT_S + 0.5, look), stalls=True) == [[]]


class Unread:
    """A consumer that owns a partition with a record, and reads nothing of it."""

    def __init__(self) -> None:
        fetcher = SimpleNamespace(
            partitions={TP}, position=lambda tp: 0, waiting=set, reason=lambda tp: "", buffered=0
        )
        self._session = SimpleNamespace(started=True, fetcher=fetcher)

    def assignment(self) -> set[TopicPartition]:
        return {TP}

    async def poll_batch(self, timeout_ms: float) -> None:
        await asyncio.sleep(timeout_ms / 1000)


@pytest.mark.parametrize("stall_s", [0.0, UNREAD_S + 2.0])
def test_what_stays_unread_while_its_user_stalls_is_its_doing_and_what_stays_so_behind_it_is_found(
    stall_s: float,
) -> None:
    """Seed 107345."""
    with Simulation(seed=1) as world:
        run = GroupRun(world, Schedule("group", 1, ()))
        run.kafka.produce(TP.topic, [b"v"], partition=TP.partition)
        member: Any = run.members[0]
        member.client, member.running, member._consumer = "m1.1", True, Unread()

        async def live() -> float:
            await asyncio.sleep(UNREAD_S)  # before that it may just have been thawed
            reading = asyncio.ensure_future(member._read(member._consumer))
            await asyncio.sleep(3.0)
            began, member.stall_s = world.loop.time(), stall_s
            while not run.checks.failures:  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.5)
            took_s, member.stopping = world.loop.time() - began, True
            await reading
            return took_s

        took_s = world.run(live(), within=300.0)
        assert (
            "m1.1 owns TopicPartition(topic='t1', partition=0), and has neither read it"
            in run.checks.failures[0]
        )
        unread_before_s = 3.0 if not stall_s else 0.0
        assert stall_s + UNREAD_S - unread_before_s < took_s < stall_s + UNREAD_S + 3.0
