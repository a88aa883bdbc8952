"""Topics for a pipeline's runs on Spark: orders go in, and what comes out is read back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from waiting import until

import kafka_actors as ka
from kafka_actors.admin import AlterConfigOp, ConfigResource
from kafka_actors.base.message import Message, messages_of

SCHEMA = "id BIGINT NOT NULL, country STRING, amount DOUBLE"
COUNTRIES = ["DE", "FR", "IT"]
PARTITIONS = 3

BAD = {7: b"", 20: b"{}{}", 29: b"\xff"}
"""Values that are no orders, one in each partition, by the ids whose place they take among the first 30."""
GOOD = [n for n in range(30) if n not in BAD]
"""The ids of the orders that are left of the first 30."""


def order(n: int) -> bytes:
    return json.dumps({"id": n, "country": COUNTRIES[n % 3], "amount": n / 2}).encode()


class Place:
    """An input topic of three partitions, an output, a dead-letter topic; and what is in them."""

    def __init__(
        self,
        spark: Any,
        cluster: Any,
        topic: Callable[[int], str],
        produce: Callable[..., object],
        group: str,
    ) -> None:
        self.spark = spark
        self.cluster = cluster
        self.group = group
        self.input, self.output, self.dead = (topic(PARTITIONS) for _ in range(3))
        self._produce = produce

    def fill(self, ids: Iterable[int], bad: Mapping[int, bytes] | None = None) -> None:
        """Orders with these ids; `bad` maps ids to values that are no orders."""
        numbers = list(ids)
        self._produce(
            self.input,
            [(bad or {}).get(n, order(n)) for n in numbers],
            partition=[n % PARTITIONS for n in numbers],
            keys=[b"k%d" % n for n in numbers],
            headers=[[("trace", b"%d" % n)] for n in numbers],
        )

    def read(self, **options: Any) -> ka.Pipeline:
        given = {"bootstrap_servers": self.cluster.bootstrap_servers, **options}
        return ka.Pipeline.read_kafka(self.input, group_id=self.group, **given)

    def records(self, topic: str) -> list[Message]:
        """All records of a topic."""
        found: list[Message] = []
        with ka.Consumer(
            topic,
            bootstrap_servers=self.cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            group_id=f"{self.group}-{uuid.uuid4()}",
        ) as consumer:
            ends = sum(self.cluster.end_offsets(topic).values())
            while len(found) < ends:
                batch = consumer.poll_batch(timeout_ms=100_000)
                assert batch is not None, f"{len(found)} of {ends}"
                found += messages_of(batch)
        return found

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Sets one of a topic's, and returns when its broker knows it: the controller has answered before."""
        of = ConfigResource("TOPIC", topic)
        with ka.Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.incremental_alter_configs({of: [AlterConfigOp(name, value)]})
            until(lambda: admin.describe_configs([of])[of][name].value == value, 30, f"{name}={value}")

    def committed(self) -> dict[int, int]:
        return {partition: o for (_, partition), o in self.cluster.committed(self.group).items() if o >= 0}
