"""Partitions and workers as `Placement` knows them, its two waits at a start, and the facts that it reports, with
their entries in the timeline.

Each partition that the group assigned to the job is in one of four states:

    FREE      no worker has it; it is granted as soon as the worker assignor gives it to a ready worker
    GRANTED   a worker has it, under a grant epoch
    DRAINING  its worker finishes the call in hand, commits and releases it, or the deadline passes
    LEAVING   like DRAINING, but the group revokes it: afterwards it is forgotten, not granted again

`LEGAL` has all transitions.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from assignors import Assignor, Member
from kafka_actors.job.lanes import Slice, source
from kafka_actors.job.machines.timeline import EntryText, named_partitions
from kafka_actors.job.messages import GrantEpoch, Version
from kafka_actors.types import TopicPartition

from .slicing import Slicing

__all__ = [
    "NEVER",
    "DrainEnd",
    "Gathering",
    "PlacedPartition",
    "PlacedWorker",
    "PlacementState",
    "Recovery",
    "Withdrawal",
    "entries_of_facts",
    "live_workers",
    "wanted_holders",
]

NEVER = float("inf")
GATHER_S = 3.0
"""Longest wait for more workers after the first one is ready, in seconds."""


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

    `epoch`: of the grant; None while no worker has it. `void`: nothing is committed under it any more. `continues`: the epoch under which an
    older incarnation granted it to this worker, until the worker reports the new epoch.
    `ordered_at`: the version of the worker's orders since which they have this state; a report that has seen them and lacks the
    partition shows that the worker has released it. `deadline`: when a drain is forced, `NEVER` without one.
    """

    partition: TopicPartition
    state: PlacementState = PlacementState.FREE
    worker: str | None = None
    epoch: GrantEpoch | None = None
    continues: GrantEpoch | None = None
    ordered_at: Version = (0, 0)
    deadline: float = NEVER
    void: bool = False

    def become(self, state: PlacementState) -> None:
        if state not in LEGAL[self.state]:
            raise RuntimeError(f"{self.partition}: {self.state.value} can't become {state.value}")
        self.state = state

    @property
    def commits_under(self) -> GrantEpoch | None:
        """The epoch under which its worker may commit it; None if nobody may."""
        return None if self.void else self.epoch


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


class Gathering:
    """The wait for more workers after new ones got ready: else the first would get partitions that move on a moment later.

    `expected`: the number of workers when all are up, without retiring ones. `open`: new workers got ready, and the wait for the
    others isn't over. It ends once all are up, or `GATHER_S` seconds after the first.
    """

    def __init__(self) -> None:
        self.expected = 0
        self.open = False
        self._until: float | None = None

    def over(self, workers: Collection[PlacedWorker], now: float) -> bool:
        """Ends the wait where it is time to. Returns whether it has just ended."""
        if not self.open:
            return False
        if self._until is None:
            self._until = now + GATHER_S
        coming = [worker for worker in workers if not worker.retiring]
        all_up = len(coming) >= self.expected and all(worker.takes_part for worker in coming)
        if now < self._until and not all_up:
            return False
        self.open, self._until = False, None
        return True

    def wakes(self) -> list[float]:
        """Returns when the wait ends at the latest; empty without one."""
        return [] if self._until is None else [self._until]


class Recovery:
    """The start of a new incarnation beside workers that hold what an older one granted.

    Nothing is granted until the group has assigned partitions (`assigned`), and each of these workers has registered, is dead, or
    is waited for no longer: then its lease of the older incarnation has ended for certain.
    """

    def __init__(self) -> None:
        self.active = False
        self.assigned = False
        self._waits_for: dict[str, float] = {}

    def begin(self, workers: Mapping[str, float]) -> None:
        """Begins to wait. `workers`: the moment until which to wait for each."""
        self._waits_for = dict(workers)
        self.active = bool(workers)

    def awaits(self, worker: str) -> bool:
        """Whether the worker keeps what it has for now, because this incarnation doesn't know yet what that is."""
        return self.active and (not self.assigned or worker in self._waits_for)

    def settled(self, worker: str) -> None:
        """Takes that a worker has registered, or is dead."""
        self._waits_for.pop(worker, None)

    def leased(self, worker: str, until: float) -> None:
        """Waits longer for a worker that may go on until then."""
        if worker in self._waits_for:
            self._waits_for[worker] = max(self._waits_for[worker], until)

    def over(self, now: float) -> bool:
        """Ends the recovery where it is time to. Returns whether there is none (any more)."""
        if self.assigned and not self.wakes(now):
            self.active = False
        return not self.active

    def wakes(self, now: float) -> list[float]:
        """Returns when no worker is waited for any longer; empty where that is so already."""
        return [until] if (until := max(self._waits_for.values(), default=now)) > now else []


def live_workers(workers: Mapping[str, PlacedWorker]) -> dict[str, PlacedWorker]:
    """Returns the workers that can take partitions."""
    return {w: k for w, k in workers.items() if k.takes_part and not (k.retiring or k.silent)}


def wanted_holders(
    assignor: Assignor, placed: Iterable[PlacedPartition], live: Mapping[str, PlacedWorker], slicing: Slicing
) -> dict[TopicPartition, str]:
    """Has the worker assignor spread the partitions that stay with the job over the workers: whole ones over all, and each slice over those
    that take it."""
    together: dict[tuple[int, int], list[PlacedPartition]] = {}
    for each in placed:
        if each.state is not PlacementState.LEAVING:
            of = each.partition
            together.setdefault((of.part, of.parts) if isinstance(of, Slice) else (0, 1), []).append(each)
    wanted: dict[TopicPartition, str] = {}
    for staying in together.values():
        able = {w: known for w, known in live.items() if slicing.takes(w, staying[0].partition)}
        wanted |= _spread(assignor, staying, able) if able else {}
    return wanted


def _spread(
    assignor: Assignor, staying: list[PlacedPartition], live: Mapping[str, PlacedWorker]
) -> dict[TopicPartition, str]:
    by_number = {source(placed.partition): placed.partition for placed in staying}
    topics: dict[str, list[int]] = {}
    owned: dict[str, list[tuple[str, int]]] = {w: [] for w in live}
    for s in staying:
        topics.setdefault(s.partition.topic, []).append(s.partition.partition)
        if s.worker in owned and s.state is PlacementState.GRANTED:
            owned[s.worker].append(source(s.partition))
    members = {
        worker: Member(topics=frozenset(topics), owned=tuple(owned[worker]), capacity=known.capacity)
        for worker, known in live.items()
    }
    assigned = assignor.assign(topics, members)
    return {by_number[TopicPartition(*tp)]: worker for worker, tps in assigned.items() for tp in tps}


# ---------------------------------------------------------------- entries in the timeline


def entries_of_facts(facts: Iterable[Withdrawal | DrainEnd]) -> list[EntryText]:
    """Makes the entries of one step's changes inside the job: one for each worker and cause."""
    together: dict[tuple[str, str, str], list[tuple[str, int]]] = {}
    for fact in facts:
        if isinstance(fact, Withdrawal):
            key = "move", fact.worker, fact.cause.replace("_", " ")
        else:
            key = "forced" if fact.outcome == "forced" else "drain", fact.worker, ""
        together.setdefault(key, []).append(source(fact.partition))
    return [
        (kind, _of_worker(kind, worker, cause, named_partitions(of)))
        for (kind, worker, cause), of in together.items()
    ]


def _of_worker(kind: str, worker: str, cause: str, partitions: str) -> str:
    """Makes the text of one entry about a worker. "forced" is one that was still at work at its deadline: the partition was taken
    from it, and the records that it has not committed are processed again elsewhere."""
    match kind:
        case "move":
            return f"{worker} gives up {partitions}: {cause}"
        case "drain":
            return f"{worker} has drained {partitions}"
    return f"{worker} had not drained {partitions} by the deadline"
