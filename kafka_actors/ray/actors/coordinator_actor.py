"""Coordinator actor: the group's member and the job's commits, with its own connections to the cluster."""

from __future__ import annotations

import logging
import time

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import JobConfig, resolved
from kafka_actors.events import log_event
from kafka_actors.group import ConsumerCoordinator
from kafka_actors.job.actor_setup import ProcessSetup
from kafka_actors.job.coordinator.broker_queries import log_end_lookup
from kafka_actors.job.coordinator.coordinator import JobCoordinator
from kafka_actors.job.coordinator.transactions import BrokerTransactions, TransactionBrokers
from kafka_actors.job.messages import CommitRequest, Identity, JobStart, Report, WorkerPlan, pack, unpack
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.job.transactions import TransactionalIds
from kafka_actors.metrics import Metrics
from kafka_actors.net import KafkaClient
from kafka_actors.telemetry.recorder import Recorder, counting
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import EARLIEST, TopicPartition

from .actor import ActorShell, once, set_up_process

__all__ = ["CoordinatorActor"]

logger = logging.getLogger(__name__)


class CoordinatorActor(ActorShell):
    """Ray shell of `JobCoordinator`: decodes, calls, encodes."""

    def __init__(
        self,
        config: JobConfig,
        incarnation: int,
        topics: list[str] | None,
        pattern: str | None,
        job_start: bytes,
        identity: bytes,
        setup: ProcessSetup,
        tiers: RetryTiers = RetryTiers(),  # noqa: B008  a frozen value
    ) -> None:
        set_up_process(setup)
        self._tally = None if setup.telemetry is None else Tally()
        self._recorder: Recorder = self._tally or Recorder()
        self._config = config
        self._incarnation = incarnation
        self._topics = topics
        self._pattern = pattern
        self._start = unpack(job_start, JobStart)
        self._identity = unpack(identity, Identity)
        self._tiers = tiers
        self._client: KafkaClient | None = None
        self._job: JobCoordinator | None = None

    @once
    async def begin(self, plan: bytes, recovering: bool) -> None:
        """Connects and starts to join the group; returns before the group has answered."""
        self._config = resolved(self._config)
        client = KafkaClient(self._config)
        subscription = SubscriptionState()
        subscription.subscribe(topics=self._topics, pattern=self._pattern)
        client.set_topics(self._topics)
        await client.bootstrap()
        self._client = client
        events = counting(self._recorder, self._config.group_id, log_event)

        def make_member(job: JobCoordinator) -> ConsumerCoordinator:
            return ConsumerCoordinator(
                client,
                subscription,
                Metrics(recorder=self._recorder),
                config=self._config,
                listener=job,
                reads=job.reads,
                commits=job.commits if self._tiers else None,
                on_recreated=job.recreated,
                group_instance_id=self._identity.group_instance_id,
                member_id=self._identity.member_id,
                incarnation=None if self._identity.transactions is None else self._incarnation,
                rebalance_timeout_ms=self._config.rebalance_timeout_ms,
                max_poll_interval_ms=None,
                on_fatal=job.failed,
                events=job.happened,
            )

        def leader(partition: TopicPartition) -> int | None:
            known = client.cluster.leader_for_partition(partition)
            return known if known is not None and known >= 0 else None

        ends = dict(self._start.ends) if self._start.ends is not None else None
        self._job = JobCoordinator(
            self._config,
            self._incarnation,
            make_member,
            ends=ends,
            present_at_start=frozenset(self._start.partitions),
            lookup_ends=log_end_lookup(client, self._config),
            lookup_starts=log_end_lookup(client, self._config, EARLIEST),
            events=events,
            leader=leader,
            tiers=self._tiers,
            partition_counts=lambda: {name: len(t.partitions) for name, t in client.snapshot.topics.items()},
            recorder=self._recorder,
            transactions=self._transactions(client),
        )
        await self._job.start(unpack(plan, WorkerPlan), recovering)

    def _transactions(self, client: KafkaClient) -> tuple[TransactionalIds, TransactionBrokers] | None:
        ids = self._identity.transactions
        if ids is None:
            return None
        return ids, BrokerTransactions(client, self._config)

    @property
    def job(self) -> JobCoordinator:
        if self._job is None:
            raise RuntimeError("the coordinator actor has not begun")
        return self._job

    async def poll(self, report: bytes) -> bytes:
        return pack(await self.job.poll(unpack(report, Report)))

    async def commit(self, request: bytes) -> bytes:
        return pack(await self.job.commit(unpack(request, CommitRequest)))

    async def set_plan(self, plan: bytes) -> None:
        await self.job.set_plan(unpack(plan, WorkerPlan))

    async def status(self, known: int) -> bytes:
        return pack(self.job.status(known=known))

    async def verdict(self, known: int, wait_s: float) -> bytes:
        return pack(await self.job.verdict(known, wait_s))

    async def ping(self) -> bytes | None:
        """Returns the packed tally since the start; None where the job isn't measured."""
        return None if self._tally is None else pack(self._tally.state())

    @once
    async def stop(self, leave: bool) -> bool:
        """Drains, commits, leaves the group, within the drain timeout and a little more; `status` tells the result then."""
        started = time.monotonic()
        await self.job.stop(leave)
        if self._client is not None:
            await self._client.close()
        logger.info("group %s: stopped in %.1f s", self._config.group_id, time.monotonic() - started)
        return True
