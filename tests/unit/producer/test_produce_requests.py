"""Produce requests and the answers in their responses."""

import uuid

from kafka_actors.producer.machines.batch import ProducerBatch
from kafka_actors.producer.machines.produce_requests import (
    ProduceOrder,
    new_leaders,
    produce_request,
    read_answers,
)
from kafka_actors.protocol import ProduceResponse
from kafka_actors.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from kafka_actors.records.batch import TRANSACTIONAL
from kafka_actors.types import TopicPartition

A, C = TopicPartition("orders", 0), TopicPartition("orders", 2)


ID = bytes(range(16))


class Sealing:
    count, used = 10, 100

    def seal(self, producer_id, epoch, sequence, attributes):
        return f"{producer_id} {epoch} {sequence} {attributes}".encode()


def batch(tp, sequence):
    made = ProducerBatch(tp, Sealing(), 0.0)
    made.producer_id, made.producer_epoch, made.sequence = 7, 0, sequence
    return made


def sealed(request):
    return [p.records for t in request.topic_data for p in t.partition_data]


def test_a_request_has_each_batch_under_its_producer_id_epoch_and_sequence():
    order = ProduceOrder(1, [batch(A, 0), batch(C, 10)])
    request = produce_request(order, acks=-1, timeout_ms=5000)
    assert sealed(request) == [b"7 0 0 0", b"7 0 10 0"]
    assert request.transactional_id is None


def test_batches_of_a_transaction_say_so():
    request = produce_request(
        ProduceOrder(1, [batch(A, 0)]), acks=-1, timeout_ms=5000, transactional_id="copier"
    )
    assert sealed(request) == [b"7 0 0 %d" % TRANSACTIONAL]
    assert request.transactional_id == "copier"


def test_a_response_has_an_answer_for_each_partition_and_new_leaders():
    good = PartitionProduceResponse(index=0, base_offset=5)
    moved = PartitionProduceResponse(
        index=2,
        error_code=6,
        error_message="moved",
        record_errors=[BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="bad")],
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="orders", partition_responses=[good, moved])],
        node_endpoints=[NodeEndpoint(node_id=2, host="h", port=9092)],
    )
    order = ProduceOrder(1)
    answers = read_answers(response, order)
    assert (answers[A].error_code, answers[A].base_offset) == (0, 5)
    assert (answers[C].error_code, answers[C].message) == (6, "moved; bad")
    [(tp, leader, broker)] = new_leaders(response, order)
    assert (tp, leader.leader_epoch, broker.host) == (C, 9, "h")


def test_topics_are_named_by_their_ids_where_all_are_known():
    """KIP-516."""
    order = ProduceOrder(1, [batch(A, 0)], topic_ids={"orders": ID})
    request = produce_request(order, acks=-1, timeout_ms=5000)
    assert [(t.name, t.topic_id.bytes) for t in request.topic_data] == [("orders", ID)]
    assert order.max_version is None
    order.topic_ids["other"] = None
    assert order.max_version == 12


def test_an_answer_by_a_topics_id_is_its_topics():
    moved = PartitionProduceResponse(
        index=0, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(topic_id=uuid.UUID(bytes=ID), partition_responses=[moved])]
    )
    order = ProduceOrder(1, [batch(A, 0)], topic_ids={"orders": ID, "other": None})
    assert read_answers(response, order)[A].error_code == 6
    assert [tp for tp, _, _ in new_leaders(response, order)] == [A]
