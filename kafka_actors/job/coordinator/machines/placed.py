"""Partitions and workers as `Placement` knows them, and the facts that it reports of them.

Each partition that the group assigned to the job is in one of four states:

    FREE      no worker has it; it is granted as soon as the worker assignor gives it to a ready worker
    GRANTED   a worker has it, under a grant epoch
    DRAINING  its worker finishes the call in hand, commits and releases it, or the deadline passes
    LEAVING   like DRAINING, but the group revokes it: afterwards it is forgotten, not granted again

`LEGAL` has all transitions.
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
    """A worker loses a partition. `cause`: as in the event `PartitionMoved`."""

    partition: TopicPartition
    worker: str
    cause: str


class DrainEnd(msgspec.Struct, frozen=True):
    """The end of a drain. `outcome`: released by the worker, or forced at the deadline."""

    partition: TopicPartition
    worker: str
    outcome: str


class PlacedPartition(msgspec.Struct):
    """One partition of the job.

    `continues`: the epoch under which an older incarnation granted it to this worker, until the worker reports the new epoch.
    `ordered_at`: the version of the worker's orders since which they have this state; a report that has seen them and lacks the
    partition shows that the worker has released it. `deadline`: when a drain is forced.
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
    """One worker of the job. It gets partitions once `ready` and `connected`, and is drained when `retiring`.

    `silent`: nobody hears of it; it keeps its partitions until `leased_until`, because it may go on until then. `version`: of
    its orders.
    """

    capacity: float = 1.0
    ready: bool = False
    connected: bool = True
    retiring: bool = False
    silent: bool = False
    leased_until: float = float("-inf")
    version: int = 1

    @property
    def takes_part(self) -> bool:
        """Whether it can work on partitions."""
        return self.ready and self.connected
