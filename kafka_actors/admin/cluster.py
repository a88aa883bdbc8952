"""Description of a cluster: its id, its brokers, and the operations that the principal may do on it."""

from __future__ import annotations

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import UnsupportedVersionError, raise_for_code
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import DescribeClusterRequest

from .machines.codes import OPERATIONS
from .requests import CallDeadline, ask_any, fresh_snapshot, persist
from .results import ClusterDescription

__all__ = ["describe_cluster", "operations_of"]

UNKNOWN_OPERATIONS = -0x80000000


async def describe_cluster(
    client: KafkaClient, with_operations: bool, deadline: CallDeadline
) -> ClusterDescription:
    """Implementation of `AsyncAdmin.describe_cluster`."""

    async def attempt(limit_ms: float) -> ClusterDescription:
        request = DescribeClusterRequest(include_cluster_authorized_operations=with_operations)
        try:
            answer = await ask_any(client, request, limit_ms)
        except UnsupportedVersionError:  # before KIP-700 (Kafka 2.8)
            known = await fresh_snapshot(client, limit_ms)
            return ClusterDescription(
                known.cluster_id,
                known.brokers.get(-1 if known.controller_id is None else known.controller_id),
                tuple(known.brokers.values()),
            )
        raise_for_code(answer.error_code, answer.error_message, request="DescribeCluster")
        nodes = {b.broker_id: BrokerMetadata(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers}
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller=nodes.get(answer.controller_id),
            nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
            authorized_operations=operations_of(answer.cluster_authorized_operations),
        )

    return await persist(client, attempt, deadline)


def operations_of(bits: int) -> frozenset[str] | None:
    """Names of the operations in the bits of a response; None where the request didn't ask for them."""
    if bits == UNKNOWN_OPERATIONS:
        return None
    return frozenset(name for name, code in OPERATIONS.items() if bits >> code & 1)
