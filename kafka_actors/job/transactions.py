"""Parts of messages that only a job with `delivery="exactly_once"` has: who may write in transactions, and what became of them.

A *session* is one producer id and epoch of a worker's role, which the coordinator actor gave to one incarnation of the worker. Its
number rises over incarnations of the coordinator, as versions of orders do.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from msgspec import Struct

from kafka_actors.types import ProducerIdentity

__all__ = [
    "ProducerGrant",
    "SessionNumber",
    "TransactionReport",
    "TransactionalIds",
    "added",
    "prefix_of",
    "role_of",
]

SessionNumber = tuple[int, int]
"""Incarnation of the coordinator actor, and a number that rises with each fence."""


class TransactionalIds(Struct, frozen=True):
    """Transactional ids of a job's workers: one for each role, and all begin with `prefix`, which begins with the group's id.

    `timeout_ms`: after this time a broker aborts a transaction that nobody ends. `named`: a job that is started again has the
    same ids, and so ends at once what its predecessor left open.
    """

    prefix: str
    timeout_ms: int
    named: bool

    def of(self, role: str) -> str:
        """Returns the id of a role, such as `worker-3`."""
        return f"{self.prefix}-{role}"

    def role(self, transactional_id: str) -> str | None:
        """Returns the role that an id is of; None for an id of somebody else."""
        role = transactional_id.removeprefix(f"{self.prefix}-")
        kind, _, number = role.partition("-")
        return role if role != transactional_id and kind == "worker" and number.isdecimal() else None


class ProducerGrant(Struct, frozen=True):
    """A session that a worker may write in. `identity` is None where an older incarnation of the coordinator has given it, and the
    worker has it already."""

    session: SessionNumber
    identity: ProducerIdentity | None = None


class TransactionReport(Struct, frozen=True):
    """A worker's transactions. `session`: the one that it has; `failed`: the last one that ended by an error, which is the `cause`.

    `committed` and `aborted` count its transactions, `repeated` the records whose results were aborted: they are read again; `lost`
    are those of the last one.
    `open_s`: for how long one is open, None where none is; `open_records`: those in it. `ago_s`: since the last one was committed.
    """

    session: SessionNumber | None = None
    failed: SessionNumber | None = None
    cause: str = ""
    committed: int = 0
    aborted: int = 0
    repeated: int = 0
    lost: int = 0
    open_s: float | None = None
    open_records: int = 0
    ago_s: float | None = None


def prefix_of(group: str, name: str) -> str:
    """Returns the prefix of the transactional ids of a job. The digest tells group `a-b` with name `c` from group `a` with name `b-c`."""
    return f"{group}-{name}-{crc32(f'{len(group)}:{group}:{name}'.encode()):08x}"


def role_of(worker: str) -> str:
    """Returns the role of a worker: `worker-3` of `worker-3.2`."""
    return worker.rpartition(".")[0]


def added(reports: Iterable[TransactionReport]) -> TransactionReport:
    """Returns the sums of counts, the longest open transaction, the last commit, and the last cause."""
    total = TransactionReport()
    for one in reports:
        total = TransactionReport(
            failed=max(filter(None, (total.failed, one.failed)), default=None),
            cause=one.cause if (one.failed or (0, 0)) > (total.failed or (0, 0)) else total.cause,
            committed=total.committed + one.committed,
            aborted=total.aborted + one.aborted,
            repeated=total.repeated + one.repeated,
            open_s=max((s for s in (total.open_s, one.open_s) if s is not None), default=None),
            ago_s=min((s for s in (total.ago_s, one.ago_s) if s is not None), default=None),
        )
    return total
