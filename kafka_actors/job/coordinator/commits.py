"""Commits of a job: what workers offer goes into one OffsetCommit at a time, and each worker is answered for its own entries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kafka_actors.errors import KafkaActorsError
from kafka_actors.job.messages import CommitReply, CommitRequest
from kafka_actors.telemetry.spans import committing
from kafka_actors.types import TopicPartition

from .context import CoordinatorContext

__all__ = ["JobCommits"]

logger = logging.getLogger(__name__)


class JobCommits:
    """Sends what `CommitGate` lets through. How that differs from the `CommitQueue` below it: see there."""

    def __init__(self, job: CoordinatorContext) -> None:
        self._job = job
        self._gate = job.gate
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._traces: list[str] = []

    async def commit(self, request: CommitRequest) -> CommitReply:
        """Waits for the broker's acknowledgement of a worker's entries, or says which are refused or failed."""
        refused = set(self._gate.offer(request.worker, request.entries))
        if request.trace:
            self._traces.append(request.trace)
        entries = [e for e in request.entries if e.partition not in refused]
        problem = ""
        if entries:
            try:
                async with asyncio.timeout(self._job.config.request_timeout_ms / 1000):
                    await self.answered()
            except (TimeoutError, KafkaActorsError) as error:
                problem = str(error) or "no answer in time"
        done = [e for e in entries if self._gate.is_committed(e)]
        failed = [(e.partition, problem or "not committed yet") for e in entries if e not in done]
        return CommitReply(request.sequence, done, sorted(refused), failed)

    async def answered(self) -> None:
        """Returns once everything offered so far has been answered by the broker."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        await waiter

    async def run(self) -> None:
        """Sends what is offered, one request after the other."""
        group = self._job.config.group_id
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiters, self._waiters = self._waiters, []
            offsets = self._gate.take()
            outcome: Mapping[TopicPartition, Exception | None] = {}
            try:
                if offsets:
                    traces, self._traces = self._traces, []
                    with committing(group, asked_by=traces):
                        outcome = await self._job.member.commit_offsets_sync(offsets)
            except KafkaActorsError as error:
                logger.warning("group %s: commit failed: %s", group, error)
                outcome = dict.fromkeys(offsets, error)
            self._gate.finished(outcome)
            self._job.wake()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
