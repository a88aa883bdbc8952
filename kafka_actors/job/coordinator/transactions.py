"""Transactions of a job that delivers exactly once, on the coordinator's side: fences, stable offsets, and whether a worker may commit.

`JobTransactions` carries out what `Settlement` decides. Workers send TxnOffsetCommit by themselves, under the membership that
`JobTransactions.commit` tells them: the one that holds at that moment, so that a rebalance alone aborts nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from msgspec.structs import replace

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.config import JobConfig
from kafka_actors.errors import KafkaActorsError, UnsupportedVersionError, error_for_code
from kafka_actors.events import TransactionAborted
from kafka_actors.group import CommittedStart
from kafka_actors.job.messages import CommitReply, CommitRequest, Report
from kafka_actors.job.transactions import SessionNumber, TransactionalIds, TransactionReport
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import ListTransactionsRequest
from kafka_actors.types import ConsumerGroupMetadata, ProducerIdentity, TopicPartition

from .context import CoordinatorContext
from .machines.settlement import FenceProducer, FetchOffsets, Settlement, SettlementAction

__all__ = ["BrokerTransactions", "JobTransactions", "TransactionBrokers"]

logger = logging.getLogger(__name__)

TOGETHER_S = 0.5
"""Time for the offsets of several partitions at once; then each is asked for alone, so that one that is not stable holds up no other."""
LIST_S = 10.0
"""Time in which all brokers have to say which transactions there are; afterwards the job goes on: stable offsets wait for the others."""
RELIST_S = 0.2
_DIED = "it died with its transaction open"


class TransactionBrokers(Protocol):
    """The part of a Kafka cluster that `JobTransactions` asks."""

    async def fence(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Returns a new producer id and epoch, once nobody else can write under this id. Raises what no retry mends."""
        ...

    async def transactional_ids(self) -> tuple[set[str], bool]:
        """Returns the ids that brokers know, and whether all of them have answered."""
        ...


class BrokerTransactions:
    """`TransactionBrokers` over a client's connections."""

    def __init__(self, client: KafkaClient, config: JobConfig) -> None:
        self._client = client
        self._config = config

    async def fence(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        from kafka_actors.producer.transaction_calls import (
            producer_identity,  # only jobs with transactions need it
        )

        config = self._config
        backoff = RetryTimer(
            config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, self._client.rand
        )
        return await producer_identity(self._client, transactional_id, timeout_ms, backoff, self._client.now)

    async def transactional_ids(self) -> tuple[set[str], bool]:
        brokers = list(self._client.snapshot.brokers)
        answers = await asyncio.gather(*map(self._ids_of, brokers))
        known = [ids for ids in answers if ids is not None]
        return set().union(*known), bool(brokers) and len(known) == len(brokers)

    async def _ids_of(self, broker: int) -> set[str] | None:
        try:
            response = await self._client.send(broker, ListTransactionsRequest())
        except UnsupportedVersionError:  # before Kafka 3.0
            return set()
        except KafkaActorsError as error:
            logger.debug("broker %d does not list its transactions: %s", broker, error)
            return None
        if error_for_code(response.error_code, request="ListTransactions", broker=broker) is not None:
            return None
        return {state.transactional_id for state in response.transaction_states}


class JobTransactions:
    """Fences producers, finds stable offsets, and tells workers whether they may commit.

    `ids`: the transactional ids of the job's workers.
    """

    def __init__(
        self,
        job: CoordinatorContext,
        settlement: Settlement,
        ids: TransactionalIds,
        brokers: TransactionBrokers,
    ) -> None:
        self._job = job
        self._settlement = settlement
        self._ids = ids
        self._brokers = brokers
        self._told: dict[str, SessionNumber] = {}

    def start(self, roles: int, recovering: bool) -> None:
        """Begins to find what earlier incarnations, and an earlier start of the job, left over. `roles`: how many the job has had."""
        if recovering:
            self._settlement.left_over((f"worker-{n}" for n in range(roles)), complete=not self._ids.named)
        elif not self._ids.named:
            self._settlement.left_over((), complete=True)
        if self._ids.named:
            self._job.tasks.create_task(self._find_left_over())

    async def _find_left_over(self) -> None:
        clock = self._job.clock
        deadline = clock() + LIST_S
        complete = False
        while not complete:
            found, complete = await self._brokers.transactional_ids()
            if not complete and clock() > deadline:
                logger.warning(
                    "not all brokers list their transactions: those of dead workers end at their timeout"
                )
                complete = True
            roles = [role for name in found if (role := self._ids.role(name)) is not None]
            self._settlement.left_over(roles, complete=complete)
            self._job.poll()
            if not complete:
                await asyncio.sleep(RELIST_S)

    # ------------------------------------------------------------ the machine's actions

    def carry_out(self, action: SettlementAction) -> None:
        """Starts what the machine decided."""
        work = self._fence(action) if isinstance(action, FenceProducer) else self._settle(action)
        self._job.tasks.create_task(work)

    async def _fence(self, fence: FenceProducer) -> None:
        identity = await self._brokers.fence(self._ids.of(fence.role), self._ids.timeout_ms)
        logger.debug("%s writes as producer %d, epoch %d", fence.role, *identity[1:3])
        self._settlement.fenced(fence, identity)
        self._job.poll()

    async def _settle(self, wanted: FetchOffsets) -> None:
        try:
            async with asyncio.timeout(TOGETHER_S if len(wanted.partitions) > 1 else None):
                starts = await self._job.member.fetch_committed_starts(wanted.partitions)
        except TimeoutError:
            for partition in wanted.partitions:
                alone = FetchOffsets(wanted.number, (partition,))
                self._job.tasks.create_task(self._settle(alone))
            return
        for partition in self._settlement.offsets_known(wanted):
            self._take_start(partition, starts.get(partition, CommittedStart()))
        self._job.poll()

    def _take_start(self, partition: TopicPartition, start: CommittedStart) -> None:
        self._job.gate.baseline({partition: start.committed})
        self._job.committed_starts[partition] = start

    # ------------------------------------------------------------ the workers' side

    def commit(self, request: CommitRequest) -> CommitReply:
        """Says whether a worker may commit these partitions in its transaction, and under which membership; or takes that it has."""
        refused = sorted(e.partition for e in request.entries if not self._may(request, e.partition, e.epoch))
        entries = [e for e in request.entries if e.partition not in refused]
        if request.done:
            self._job.gate.committed_elsewhere(entries)
            self._job.wake()
            return CommitReply(request.sequence, entries, refused, [])
        group = self._membership()
        failed = [] if group is not None else [(e.partition, "the job is not in its group") for e in entries]
        return CommitReply(request.sequence, [], refused, failed, group)

    def _may(self, request: CommitRequest, partition: TopicPartition, epoch: tuple[int, int]) -> bool:
        session = self._settlement.session_of(request.worker)
        if session is None or session.session != request.session:
            return False
        return self._job.placement.holder(request.worker, partition) == epoch

    def _membership(self) -> ConsumerGroupMetadata | None:
        """Returns the job's membership; None while it has none. Without a generation the group's coordinator would check nothing."""
        member = self._job.member
        if member.generation < 0 or not member.member_id or member.losing:
            return None
        return ConsumerGroupMetadata(
            member.group_id, member.generation, member.member_id, member.group_instance_id
        )

    def reported(self, report: Report) -> None:
        """Takes a worker's report of its transactions: one that failed takes all of its partitions."""
        found = report.transactions
        if found is None:
            return
        session = self._settlement.session_of(report.worker)
        if session is not None and session.session == found.failed:
            self._job.placement.transaction_failed(report.worker)
        if found.failed is not None and found.failed > self._told.get(report.worker, (0, 0)):
            self._told[report.worker] = found.failed
            self._job.happened(TransactionAborted(report.worker, found.cause, found.lost))

    def died(self, worker: str, last: TransactionReport) -> TransactionReport:
        """Takes that a worker's process has ended. The transaction that was open at its last report is aborted by the fence; returns
        the report with that counted."""
        if last.open_s is None:
            return last
        self._job.happened(TransactionAborted(worker, _DIED, last.open_records))
        return replace(
            last,
            failed=last.session,
            cause=_DIED,
            aborted=last.aborted + 1,
            repeated=last.repeated + last.open_records,
            lost=last.open_records,
            open_s=None,
            open_records=0,
        )
