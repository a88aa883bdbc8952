"""A partition of the member inside the job, a worker of the job, and what happens between the two.

Each partition that the group gave to the job is in one of four states:

    FREE      nobody has it; it is granted as soon as a ready worker is to have it
    GRANTED   a worker has it under an epoch
    DRAINING  its worker finishes what is in hand, commits and lets go, or the deadline passes
    LEAVING   as DRAINING, but the group takes it away: it is forgotten afterwards, not granted again
"""

from __future__ import annotations

import enum

import msgspec

from kafka_actors.job.messages import GrantEpoch, Version
from kafka_actors.types import TopicPartition

__all__ = ["DrainEnd", "PlacedPartition", "PlacedWorker", "PlacementState", "Withdrawal"]


class PlacementState(enum.Enum):
    FREE = "free"
    GRANTED = "granted"
    DRAINING = "draining"
    LEAVING = "leaving"


LEGAL: dict[PlacementState, frozenset[PlacementState]] = {
    PlacementState.FREE: frozenset({PlacementState.GRANTED}),
    PlacementState.GRANTED: frozenset({PlacementState.DRAINING, PlacementState.LEAVING, PlacementState.FREE}),
    PlacementState.DRAINING: frozenset({PlacementState.FREE, PlacementState.LEAVING}),
    PlacementState.LEAVING: frozenset(),
}


class Withdrawal(msgspec.Struct, frozen=True):
    """A worker is to lose a partition, for a cause: see the event `PartitionMoved`."""

    partition: TopicPartition
    worker: str
    cause: str


class DrainEnd(msgspec.Struct, frozen=True):
    """A drain ended. `outcome`: released by the worker, or forced at the deadline."""

    partition: TopicPartition
    worker: str
    outcome: str


class PlacedPartition(msgspec.Struct):
    """One partition.

    `continues`: the epoch under which its worker had it from an older incarnation, until the worker reports the
    new one. `ordered_at`: the version of the worker's orders that say this of it; a report that has seen them and
    does not name the partition means that the worker let go of it. `deadline`: when a drain is cut short.
    """

    partition: TopicPartition
    state: PlacementState = PlacementState.FREE
    worker: str | None = None
    epoch: GrantEpoch | None = None
    continues: GrantEpoch | None = None
    ordered_at: Version = (0, 0)
    deadline: float = float("inf")

    def become(self, state: PlacementState) -> None:
        if state not in LEGAL[self.state]:
            raise RuntimeError(f"{self.partition}: {self.state.value} can't become {state.value}")
        self.state = state


class PlacedWorker(msgspec.Struct):
    """A worker as the placement knows it: it takes part once `ready` and `connected`, and gives everything up when `retiring`. Of one that
    is `silent` nobody hears; it may go on until `leased_until`, and keeps for so long what it has."""

    capacity: float = 1.0
    ready: bool = False
    connected: bool = True
    retiring: bool = False
    silent: bool = False
    leased_until: float = float("-inf")
    version: int = 1

    @property
    def takes_part(self) -> bool:
        """Whether it works on what it is given."""
        return self.ready and self.connected
