"""Settlement of a job that delivers exactly once: before a free partition is granted, nobody can write for it any more, and its
committed offset is final.

Theory of operation. Kafka's own fencing doesn't know a zombie inside one generation: the job is one member, and a worker that was taken
for dead may come back under the same generation, while TxnOffsetCommit never checks who owns a partition. So producer epochs are
the coordinator actor's to give. Each worker's role has one transactional id, and InitProducerId for it is a *fence*: it returns once
the open transaction of the role is ended and its markers are written, and whatever the producer before it still sends is refused.
The id and epoch that a fence returns are a *session*, given to one worker of the role, which never asks for one itself.

Arrives: workers that come and go, the sessions that workers of an older incarnation have (`adopt`), partitions that were freed and how
(`freed`), answers (`fenced`, `offsets_known`). Decided: which fences there are to be (`FenceProducer`), whose offsets to ask for
(`FetchOffsets`), which worker has which session, and when a partition is settled. The order:

- released by its worker (a drain): all of its results are in a transaction whose EndTxn was answered. Its markers may not be written yet,
  so the offsets have to be stable (OffsetFetch with `require_stable`).
- taken by force from a worker: a fence of its role that began after the worker had its session, then stable offsets.
- of unknown history, after the group assigned it: the fences of all roles that are left over (`begin`), then stable offsets.

A fence aborts all that its worker has open, so a worker that loses its session loses all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Never

from msgspec import Struct

from kafka_actors.base.machine import Ready
from kafka_actors.job.transactions import ProducerGrant, SessionNumber, role_of
from kafka_actors.types import ProducerIdentity, TopicPartition

__all__ = ["FenceProducer", "FetchOffsets", "NoSettlement", "Settlement", "SettlementAction"]


class FenceProducer(Struct, frozen=True):
    """Get a producer id for the role (InitProducerId), for `fenced`. `number` is that of the session."""

    role: str
    number: int


class FetchOffsets(Struct, frozen=True):
    """Ask where these partitions are to be taken on, once no transaction moves that any more, for `offsets_known`."""

    number: int
    partitions: tuple[TopicPartition, ...]


SettlementAction = FenceProducer | FetchOffsets


class ProducerRole(Struct):
    """A transactional id. `worker` has its newest `session`, unless it is None; `valid`: nobody is to be fenced. `identity`: of the
    session, None where an older incarnation has given it. `fencing`: the number of the fence under way, 0 for none."""

    session: SessionNumber | None = None
    identity: ProducerIdentity | None = None
    worker: str | None = None
    valid: bool = False
    fencing: int = 0


class UnsettledPartition(Struct):
    """A partition that nobody may be granted. `worker`: from which it was taken by force, in its `session`; None for none. `known`:
    that is all its history. `wanted`: the group has assigned it. `asked`: the number of the question for its offsets, 0 for none."""

    worker: str | None
    session: SessionNumber
    known: bool
    wanted: bool = True
    asked: int = 0


class NoSettlement:
    """Settlement of a job that delivers at least once: every free partition may be granted, and every worker works."""

    def worker_comes(self, worker: str) -> None: ...
    def worker_goes(self, worker: str) -> None: ...
    def adopt(self, worker: str, session: SessionNumber | None) -> None: ...
    def fence(self, worker: str) -> None: ...
    def assigned(self, partition: TopicPartition) -> None: ...
    def freed(self, partition: TopicPartition, taken_from: str | None) -> None: ...
    def gone(self, partition: TopicPartition) -> None: ...
    def held(self, partition: TopicPartition) -> None: ...
    def begin(self) -> None: ...

    def session_of(self, worker: str) -> ProducerGrant | None:
        return _ANY

    def settled(self, partition: TopicPartition) -> bool:
        return True

    def reason(self, partition: TopicPartition) -> str:
        return ""

    def take_changes(self) -> tuple[set[str], bool]:
        return set(), False


_ANY = ProducerGrant((0, 0))


class Settlement(NoSettlement):
    """Says when a partition may be granted, and which session a worker has; see the module's theory of operation."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._number = 0
        self._begun = False
        self._listed = False
        self._left_over: set[str] = set()  # roles of older incarnations and jobs that nobody has
        self._roles: dict[str, ProducerRole] = {}
        self._workers: dict[str, str] = {}  # role → its newest worker
        self._had: dict[str, SessionNumber] = {}  # worker → its last session
        self._unsettled: dict[TopicPartition, UnsettledPartition] = {}
        self._changed_workers: set[str] = set()
        self._changed = False

    # ------------------------------------------------------------ roles

    def left_over(self, roles: Iterable[str], *, complete: bool) -> None:
        """Takes roles that may have open transactions or living producers from before this incarnation. `complete`: there are no
        others, as far as anybody can tell."""
        self._left_over.update(role for role in roles if self._role(role).session is None)
        self._listed |= complete

    def begin(self) -> None:
        """Takes that all workers of an older incarnation have registered, or are gone: what is left over is fenced now."""
        self._begun = True

    def worker_comes(self, worker: str) -> None:
        """Takes that there is this worker. It gets a session of its own, unless it turns out to have one (`adopt`)."""
        role = role_of(worker)
        if self._workers.get(role) == worker:
            return
        self._workers[role] = worker
        self._give(role)

    def worker_goes(self, worker: str) -> None:
        """Takes that this worker is gone, for good: its session is fenced."""
        role = role_of(worker)
        if self._workers.get(role) == worker:
            del self._workers[role]
        self.fence(worker)

    def adopt(self, worker: str, session: SessionNumber | None) -> None:
        """Takes the session that a worker has from an older incarnation, None for none."""
        role = self._role(role_of(worker))
        if session is None or role.session is not None or role.fencing:
            return
        role.session, role.worker, role.valid = session, worker, True
        self._had[worker] = session
        self._left_over.discard(role_of(worker))

    def fence(self, worker: str) -> None:
        """Takes a worker's session away from it, if it has one: a fence follows."""
        role = self._role(role_of(worker))
        if role.worker == worker:
            role.valid, role.worker = False, None
            self._changed_workers.add(worker)

    def session_of(self, worker: str) -> ProducerGrant | None:
        """Returns the session in which a worker may write now; None if it has none."""
        role = self._roles.get(role_of(worker))
        if role is None or role.worker != worker or not role.valid or role.session is None:
            return None
        return ProducerGrant(role.session, role.identity)

    def _role(self, role: str) -> ProducerRole:
        return self._roles.setdefault(role, ProducerRole())

    def _give(self, name: str) -> None:
        """Gives a session that nobody has to the role's worker, or has the one of an older worker fenced."""
        role, worker = self._role(name), self._workers.get(name)
        if worker is None or role.worker == worker or not role.valid:
            return
        if role.worker is not None:
            self.fence(role.worker)
        elif role.session is not None:
            role.worker = worker
            self._had[worker] = role.session
            self._changed_workers.add(worker)
            self._changed = True

    # ------------------------------------------------------------ partitions

    def assigned(self, partition: TopicPartition) -> None:
        """Takes that the group assigned a partition that no worker has."""
        known = self._unsettled.setdefault(partition, UnsettledPartition(None, (0, 0), known=False))
        known.wanted = True

    def freed(self, partition: TopicPartition, taken_from: str | None) -> None:
        """Takes that a worker's partition is free: released by it, or taken by force from the worker that is named."""
        session = self._had.get(taken_from or "", (0, 0))
        if taken_from is not None:
            self.fence(taken_from)
            if self._role(role_of(taken_from)).session is None:
                self._left_over.add(role_of(taken_from))
        self._unsettled[partition] = UnsettledPartition(taken_from, session, known=True)

    def gone(self, partition: TopicPartition) -> None:
        """Takes that the group took a partition away. Should it come back, what has to be fenced is still known."""
        if (known := self._unsettled.get(partition)) is not None:
            known.wanted, known.asked = False, 0

    def held(self, partition: TopicPartition) -> None:
        """Takes that a worker goes on with a partition that it has from an older incarnation."""
        self._unsettled.pop(partition, None)

    def settled(self, partition: TopicPartition) -> bool:
        """Whether the partition may be granted."""
        return partition not in self._unsettled

    def reason(self, partition: TopicPartition) -> str:
        """Returns what a free partition waits for; empty if for nothing here."""
        known = self._unsettled.get(partition)
        if known is None:
            return ""
        if not known.known and not self._over():
            left = ", ".join(sorted(self._left_over)) or "earlier starts of the job"
            return f"waits until transactions that {left} left open are ended"
        if not self._fenced(known):
            return f"waits for the fence of {known.worker}"
        return "waits for stable offsets"

    def _over(self) -> bool:
        return self._begun and self._listed and not self._left_over

    def _fenced(self, known: UnsettledPartition) -> bool:
        """Whether nobody can write for a partition any more."""
        if not known.known and not self._over():
            return False
        if known.worker is None:
            return True
        role = self._role(role_of(known.worker))
        return role.session is not None and role.session > known.session

    # ------------------------------------------------------------ answers

    def fenced(self, fence: FenceProducer, identity: ProducerIdentity) -> None:
        """Takes the answer to a `FenceProducer`."""
        role = self._role(fence.role)
        if role.fencing != fence.number:
            return
        role.session, role.identity = (self._incarnation, fence.number), identity
        role.fencing, role.valid, role.worker = 0, True, None
        self._left_over.discard(fence.role)
        self._give(fence.role)

    def offsets_known(self, answered: FetchOffsets) -> list[TopicPartition]:
        """Takes that stable offsets are known. Returns the partitions that are settled by that: the answer counts for these."""
        settled = [
            partition
            for partition in answered.partitions
            if (known := self._unsettled.get(partition)) is not None and known.asked == answered.number
        ]
        for partition in settled:
            del self._unsettled[partition]
        self._changed |= bool(settled)
        return settled

    # ------------------------------------------------------------ steps

    def poll(self, now: float) -> Ready[SettlementAction, Never]:
        """Starts the fences and questions that are due."""
        if not self._begun:
            return Ready()
        actions: list[SettlementAction] = [
            self._begin_fence(name) for name, role in self._roles.items() if self._is_due(name, role)
        ]
        if wanted := [
            (partition, known)
            for partition, known in self._unsettled.items()
            if known.wanted and not known.asked and self._fenced(known)
        ]:
            self._number += 1
            for _, known in wanted:
                known.asked = self._number
            actions.append(FetchOffsets(self._number, tuple(partition for partition, _ in wanted)))
        return Ready(tuple(actions))

    def _is_due(self, name: str, role: ProducerRole) -> bool:
        if role.fencing or role.valid:
            return False
        return name in self._left_over or name in self._workers or role.session is not None

    def _begin_fence(self, name: str) -> FenceProducer:
        self._number += 1
        self._roles[name].fencing = self._number
        return FenceProducer(name, self._number)

    def take_changes(self) -> tuple[set[str], bool]:
        """Returns the workers whose session has changed, and whether partitions or workers may have become grantable."""
        workers, self._changed_workers = self._changed_workers, set()
        changed, self._changed = self._changed, False
        return workers, changed

    def __repr__(self) -> str:
        return f"<Settlement {len(self._unsettled)} unsettled, {len(self._roles)} roles>"
