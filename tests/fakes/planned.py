"""A fetch machine's turn by kinds of what it asks for."""

from __future__ import annotations

from typing import NamedTuple

from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.fetch.machines.positions import EpochValidation
from kafka_actors.fetch.machines.pull_stream import EndPull, PullToSend
from kafka_actors.fetch.machines.resets import OffsetLookup


class Planned(NamedTuple):
    pulls: list[PullToSend]
    lookups: list[OffsetLookup]
    validations: list[EpochValidation]
    refresh_metadata: bool
    events: list[object]
    next_wake: float | None
    ended: set[int]  # streams whose present pull is to end


def planned(machine: FetchMachine, now: float) -> Planned:
    """Polls the machine."""
    ready = machine.poll(now)
    return Planned(
        [action for action in ready.actions if isinstance(action, PullToSend)],
        [action for action in ready.actions if isinstance(action, OffsetLookup)],
        [action for action in ready.actions if isinstance(action, EpochValidation)],
        any(isinstance(action, RefreshMetadata) for action in ready.actions),
        list(ready.events),
        ready.next_wake,
        {action.token for action in ready.actions if isinstance(action, EndPull)},
    )
