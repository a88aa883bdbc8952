"""A producer of the scenario `group`: records with unique values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TYPE_CHECKING, Any

from kafka_actors import AsyncProducer
from kafka_actors.errors import KafkaActorsError
from kafka_actors.types import TopicPartition

if TYPE_CHECKING:
    from .group_scenario import GroupRun

CALL_S = 5.0
SLACK_S = 1.0
CLOSE_GRACE_S = 9.0
"""Seconds beyond its limit that a close may take: 5 for an IO thread, 3 for connections, 1 for the rest."""
BATCH_BYTES = 2_500
"""At most what a batch of one of these records takes in memory."""


class Writer:
    """A producer of records with unique values: its name and a number that rises. `sent`: where each was sent."""

    def __init__(self, run: GroupRun, name: str) -> None:
        self.name = name
        self.run = run
        self.sent: dict[bytes, TopicPartition] = {}
        self.random = Random(f"{name} {run.world.seed}")
        self.anew = False
        self._number = 0
        self._memory = Random(f"memory of {name} {run.world.seed}").choice([2**25, 2**25, 20_000])

    def options(self) -> dict[str, Any]:
        """The producer's options."""
        return {
            "bootstrap_servers": self.run.kafka.bootstrap_servers,
            "client_id": self.name,
            "linger_ms": self.random.choice([0, 20, 200]),
            "request_timeout_ms": 4_000,
            "delivery_timeout_ms": 20_000,
            "max_block_ms": int(CALL_S * 1000),
            "metadata_max_age_ms": 8_000,
            "buffer_memory": self._memory,
        }

    async def write(self) -> None:
        """Writes until the faults end."""
        run = self.run
        producer = AsyncProducer(**self.options())
        while not run.healed:
            if not await self.some(producer, self.any_partition()):
                await self._close(producer)
                producer, self.anew = AsyncProducer(**self.options()), True
            self._check_memory(producer)
            await asyncio.sleep(run.plan.pace_s)
        await self._close(producer)

    async def _close(self, producer: AsyncProducer) -> None:
        closing = producer.close(timeout_ms=30_000)
        try:
            await self.run.limited(f"close of {self.name}", 30.0 + CLOSE_GRACE_S, closing, self.name)
        except KafkaActorsError as error:
            self.run.note_error(self.name, error)

    def any_partition(self) -> TopicPartition:
        """Draws one."""
        topic = self.random.choice(self.run.topics)
        return TopicPartition(topic, self.random.randrange(self.run.plan.topics[topic]))

    def next_value(self) -> bytes:
        """The value of its next record."""
        self._number += 1
        return f"{self.name} {self._number:05}".encode()

    async def some(self, producer: AsyncProducer, tp: TopicPartition) -> bool:
        """Writes some records. Returns whether this producer may go on."""
        for _ in range(self.random.randint(1, 3)):
            try:
                await self.send(producer, tp, self.next_value())
            except KafkaActorsError as error:
                self.run.note_error(self.name, error)
        return True

    async def send(self, producer: AsyncProducer, tp: TopicPartition, value: bytes) -> None:
        """Sends one record, and notes where brokers say that it is."""
        self.sent[value] = tp
        sending = producer.send(tp.topic, value, partition=tp.partition)
        future = await self.run.limited(f"send of {self.name}", CALL_S + SLACK_S, sending, self.name)
        self.run.count("records sent")
        self.run.world.start(self.name, self._acknowledged(tp, value, future))

    async def _acknowledged(self, tp: TopicPartition, value: bytes, future: Awaitable[Any]) -> None:
        try:
            found = await future
        except KafkaActorsError as error:
            self.run.note_error(self.name, error)
            return
        self.run.checks.acknowledged(value, tp, found.offset)

    def _check_memory(self, producer: AsyncProducer) -> None:
        used = producer._core.intake.used
        if used > self._memory + BATCH_BYTES:
            self.run.checks.fail(f"{self.name} holds {used} bytes: its buffer_memory is {self._memory}")
