"""Requests of transactions in the versions that a cluster's transaction version wants, and errors in answers."""

from kafka_actors import errors
from kafka_actors.producer.machines.transaction_requests import (
    OffsetsInTransaction,
    TransactionScope,
    add_partitions,
    answered_error,
    commit_offsets,
    end,
    find_coordinator,
    init_producer_id,
)
from kafka_actors.protocol import (
    AddPartitionsToTxnResponse,
    FindCoordinatorResponse,
    TxnOffsetCommitResponse,
)
from kafka_actors.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from kafka_actors.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

ONE, TWO = TransactionScope("copier", 7, 3, 1), TransactionScope("copier", 7, 3, 2)
A, B = TopicPartition("a", 0), TopicPartition("b", 5)
MEMBER = ConsumerGroupMetadata("g", 4, "m-1", "i-1")
NONE, ABORTABLE, LOADING, MOVED, NOT_TRIED = 0, 120, 14, 16, 55


def test_versions_say_which_transactions_the_client_does():
    assert (end(ONE, 1, committed=True).min_version, end(ONE, 1, committed=True).max_version) == (None, 4)
    assert (end(TWO, 1, committed=True).min_version, end(TWO, 1, committed=True).max_version) == (5, None)
    offsets = OffsetsInTransaction({A: OffsetAndMetadata(1)}, MEMBER)
    assert commit_offsets(ONE, offsets, 1).max_version == 4
    assert commit_offsets(TWO, offsets, 1).min_version == 5
    assert add_partitions(ONE, [A], 1).max_version == 3


def test_offsets_go_with_the_membership():
    body = commit_offsets(TWO, OffsetsInTransaction({A: OffsetAndMetadata(9, "note", 2)}, MEMBER), 1).body
    assert (body.group_id, body.generation_id, body.member_id, body.group_instance_id) == MEMBER
    assert (body.transactional_id, body.producer_id, body.producer_epoch) == ("copier", 7, 3)
    [topic] = body.topics
    [p] = topic.partitions
    assert (topic.name, p.partition_index, p.committed_offset) == ("a", 0, 9)
    assert (p.committed_metadata, p.committed_leader_epoch) == ("note", 2)


def test_a_producer_goes_on_only_with_its_own_id_and_epoch():
    assert init_producer_id(ONE, 60_000, 1).body.producer_epoch == 3
    fresh = init_producer_id(TransactionScope("copier"), 60_000, 1).body
    assert (fresh.producer_id, fresh.producer_epoch, fresh.transaction_timeout_ms) == (-1, -1, 60_000)


def test_a_producer_id_comes_from_brokers_that_can_raise_its_epoch():
    """A broker before 2.5 would only refuse in the end, with the epoch to be raised after a commit (KIP-360)."""
    for scope in (TransactionScope("copier"), ONE):
        assert init_producer_id(scope, 60_000, 1).min_version == 3


def test_each_request_has_its_coordinator():
    offsets = OffsetsInTransaction({A: OffsetAndMetadata(1)}, MEMBER)
    of_group = find_coordinator(commit_offsets(ONE, offsets, None), "copier").body
    of_transaction = find_coordinator(end(ONE, None, committed=True), "copier").body
    assert (of_group.key_type, of_group.coordinator_keys) == (0, ["g"])
    assert (of_transaction.key_type, of_transaction.coordinator_keys) == (1, ["copier"])


def added(*codes):
    results = [AddPartitionsToTxnPartitionResult(n, code) for n, code in enumerate(codes)]
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("a", results)]
    )


def test_of_several_errors_the_one_that_says_most_counts():
    request = add_partitions(ONE, [A, B], 1)
    assert answered_error(request, added(NONE, NONE)) is None
    assert type(answered_error(request, added(NOT_TRIED, LOADING))) is errors.CoordinatorLoadInProgressError
    assert type(answered_error(request, added(LOADING, MOVED))) is errors.NotCoordinatorError
    assert type(answered_error(request, added(MOVED, ABORTABLE, LOADING))) is errors.TransactionAbortableError
    assert type(answered_error(request, added(ABORTABLE, 90))) is errors.ProducerFencedError


def test_an_error_names_what_it_is_about():
    request = commit_offsets(ONE, OffsetsInTransaction({A: OffsetAndMetadata(1)}, MEMBER), 1)
    parts = [TxnOffsetCommitResponsePartition(0, 22)]
    error = answered_error(
        request, TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("a", parts)])
    )
    assert str(error).startswith("ILLEGAL_GENERATION (22) in answer to TxnOffsetCommit for a-0 for group 'g'")
    found = find_coordinator(request, "copier")
    refused = FindCoordinatorResponse(error_code=30)
    assert "for group 'g'" in str(answered_error(found, refused))
