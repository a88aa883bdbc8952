"""Schedules of a simulation: a scenario, a seed, and the faults as data, so that they can be kept, dropped one by one, and run again.

A scenario is a module with `schedule_of(seed)` and `run(schedule)`; `SCENARIOS` names them. All else of a run (members, options, delays)
comes from the seed alone, so that a schedule with fewer faults is the same run as far as it can be.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

SCENARIOS = {"group": "simulation.group_scenario", "job": "simulation.job_scenario"}
"""The module of each scenario."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. `at`: seconds of the virtual clock. The scenario says what each kind is, and which of the others it uses: `who` a client,
    `node` a broker, `seconds` how long, `number` a count or code, `name` a topic or an API."""

    at: float
    kind: str
    who: str = ""
    node: int = 0
    seconds: float = 0.0
    number: int = 0
    name: str = ""

    def __str__(self) -> str:
        fields = {name: getattr(self, name) for name in self.__struct_fields__[2:]}
        told = " ".join(f"{name}={value}" for name, value in fields.items() if value)
        return f"{self.at:6.2f}  {self.kind} {told}"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run to be made. `seconds`: for how long there may be faults, 0 for as long as the scenario has it at most. `transactions`: whether
    producers write in transactions. Of one that is kept, `found` is how it failed, and `guard` the name in `tests/mutants.toml` of what
    mended that: without it the run still fails; none where a check was wrong."""

    scenario: str
    seed: int
    faults: tuple[Fault, ...]
    seconds: float = 0.0
    transactions: bool = False
    found: str = ""
    guard: str = ""


class Outcome(msgspec.Struct):
    """One run that was made: the first broken promise ("" for none), and counts for the table."""

    seed: int
    failure: str
    counts: dict[str, float]


def scenario_of(name: str) -> Any:
    """Imports a scenario's module."""
    return import_module(SCENARIOS[name])


def of_seed(scenario: str, seed: int) -> Schedule:
    """Returns the schedule that a seed makes."""
    made: Schedule = scenario_of(scenario).schedule_of(seed)
    return made


def run(schedule: Schedule) -> Outcome:
    """Runs a schedule."""
    outcome: Outcome = scenario_of(schedule.scenario).run(schedule)
    return outcome


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool], most: int = 200) -> Schedule:
    """Drops faults for as long as the run still fails: halves, then quarters, down to single ones (delta debugging); `most` runs at most."""
    faults, size = list(schedule.faults), max(1, len(schedule.faults) // 2)
    while faults and most > 0:
        dropped = False
        for start in range(0, len(faults), size):
            if most <= 0:
                break
            fewer = faults[:start] + faults[start + size :]
            most -= 1
            if fails(msgspec.structs.replace(schedule, faults=tuple(fewer))):
                faults, dropped = fewer, True
                break
        if dropped:
            size = max(1, min(size, len(faults) // 2))
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return msgspec.structs.replace(schedule, faults=tuple(faults))
