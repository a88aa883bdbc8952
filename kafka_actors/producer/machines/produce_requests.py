"""Produce requests and their answers: batches that go out together, and what a response says of each.

Theory of operation. `Sender` puts batches into a `ProduceOrder`; `produce_request` makes the request of it
when it is sent, and not before: only then a batch's producer id, epoch and sequence are final, and sealing
writes them into its header with the checksum. A batch that is sent again is sealed again, with the same
sequence, by which the broker knows it.

A response has an answer for each partition, not for the request. `read_answers` joins the broker's message
with those about single records (KIP-467), so that an error names the reason; what it means for the batch is
`batch.action_for`. `new_leaders` reads who leads a partition that has moved (KIP-951): the batch can go there
without waiting for metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.protocol import ProduceRequest, ProduceResponse
from kafka_actors.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
)
from kafka_actors.protocol.schema import uuid_of
from kafka_actors.records.batch import TRANSACTIONAL
from kafka_actors.types import TopicPartition

from .batch import ProducerBatch

_BY_NAME = 12
"""The last version of Produce that names topics."""
RECORDS_OVERHEAD = 64
"""Bytes of a partition in a request besides its records, about."""


@dataclass(slots=True)
class ProduceOrder:
    """One request: at most one batch of each partition. `topic_ids` are those of its topics when it was made, None for unknown."""

    node: int
    batches: list[ProducerBatch] = field(default_factory=list)
    size: int = 0
    topic_ids: dict[str, bytes | None] = field(default_factory=dict)

    @property
    def max_version(self) -> int | None:
        """The highest version of Produce that can carry it: from 13 on topics are named by their ids (KIP-516), so that a recreated topic
        takes nothing that was sent to the one before."""
        return None if all(self.topic_ids.values()) else _BY_NAME


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """The answer of a response for one partition."""

    error_code: int = 0
    base_offset: int = -1
    timestamp_ms: int = -1
    message: str | None = None


def produce_request(
    order: ProduceOrder, *, acks: int, timeout_ms: int, transactional_id: str | None = None
) -> ProduceRequest:
    """Returns the request that carries the batches of an order, each sealed with its producer id, epoch and sequence."""
    attributes = 0 if transactional_id is None else TRANSACTIONAL
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in order.batches:
        topic, partition = batch.partition
        records = batch.content.seal(
            batch.producer_id, batch.producer_epoch, batch.sequence, attributes=attributes
        )
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=records))
    data = [
        TopicProduceData(name=name, topic_id=uuid_of(order.topic_ids.get(name)), partition_data=data)
        for name, data in topics.items()
    ]
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=data
    )


def _named(
    response: ProduceResponse, order: ProduceOrder
) -> list[tuple[str, list[PartitionProduceResponse]]]:
    """Returns what the response says of each topic, by name, also where the broker names it by its id."""
    names = {topic_id: name for name, topic_id in order.topic_ids.items() if topic_id}
    return [(t.name or names.get(t.topic_id.bytes, ""), t.partition_responses) for t in response.responses]


def read_answers(response: ProduceResponse, order: ProduceOrder) -> dict[TopicPartition, ProduceAnswer]:
    """Returns the answers to an order, by partition."""
    answers = {}
    for topic, partitions in _named(response, order):
        for p in partitions:
            message = p.error_message
            if p.record_errors:
                messages = [
                    e.batch_index_error_message for e in p.record_errors if e.batch_index_error_message
                ]
                message = "; ".join([message or "", *messages]).strip("; ")
            answers[TopicPartition(topic, p.index)] = ProduceAnswer(
                p.error_code, p.base_offset, p.log_append_time_ms, message
            )
    return answers


def new_leaders(
    response: ProduceResponse, order: ProduceOrder
) -> list[tuple[TopicPartition, LeaderIdAndEpoch, BrokerMetadata | None]]:
    """Returns the leaders that a broker names which doesn't lead any more (KIP-951), with their addresses if it knows them."""
    nodes = {n.node_id: BrokerMetadata(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints}
    return [
        (TopicPartition(topic, p.index), p.current_leader, nodes.get(p.current_leader.leader_id))
        for topic, partitions in _named(response, order)
        for p in partitions
        if p.current_leader.leader_id >= 0
    ]
