"""`check_cluster`: whether the job can connect at all, before Ray is started, which takes seconds."""

from __future__ import annotations

import asyncio
import logging

from kafka_actors.base.io_thread import IoThread
from kafka_actors.config import JobConfig, resolved
from kafka_actors.net import KafkaClient

__all__ = ["check_cluster"]

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Time for the brokers to answer. After it the job starts nevertheless, and its actors wait for them."""


def check_cluster(config: JobConfig) -> None:
    """Connects to a broker once, from the machine where the job will run; logs why none answers yet.

    Raises errors that don't go away by waiting: `ConfigError` (also for a reference to a missing variable or file),
    `AuthenticationError`, and `NoBrokersAvailable` where each bootstrap server is an unknown host or no Kafka broker.
    """
    thread = IoThread("kafka-actors-broker-check")
    try:
        thread.run(_connected(config))
    finally:
        thread.stop()


async def _connected(config: JobConfig) -> None:
    client = KafkaClient(resolved(config))
    try:
        async with asyncio.timeout(LOOK_S):
            await client.bootstrap(timeout_ms=60_000)
    except TimeoutError:
        logger.warning("no broker answers yet: %s", client.trouble())
    finally:
        await client.close()
