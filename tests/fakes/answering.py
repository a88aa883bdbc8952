"""Stand-in for a `KafkaClient` whose answers are written down beforehand, in order, and whose clock stands still."""

from __future__ import annotations

from typing import Any

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot
from kafka_actors.config import ClientConfig


class AnsweringClient:
    """Two brokers, of which the first is the controller. Each request takes the next answer; errors are raised."""

    config = ClientConfig(request_timeout_ms=1000, retry_backoff_ms=0, retry_backoff_max_ms=0)

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []
        self.nodes: list[int] = []
        self.snapshot = ClusterSnapshot(
            brokers={node: BrokerMetadata(node, "b", 9092) for node in (1, 2)}, controller_id=1
        )

    def now(self) -> float:
        return 0.0

    def rand(self) -> float:
        return 0.5

    def least_loaded_node(self) -> int:
        return 2

    async def update_metadata(self) -> ClusterSnapshot:
        return self.snapshot

    async def send(self, node_id: int, request: Any, **_: object) -> Any:
        self.nodes.append(node_id)
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
