"""Answers with an error: the exception with which a part of a broker refuses, and the response with a code in
each place.

Theory of operation. Two ways lead to an error code in a response.

- A handler refuses a part of a request: it raises `Refused` with a class of `kafka_actors.errors`, and
  whoever builds the response catches it where the protocol has a place for the code, at a partition, a topic,
  a group or the whole response. So each check is one `raise`, whatever it was called for, and one bad
  partition leaves the others as they are.
- A request is refused before any handler sees it: a test's rule says so (`AnswerWithError`), or a
  transactional batch came without a transactional id. Then nothing is known but the request, so
  `error_response` goes through it and puts the code at each topic, partition or group that it names.

Where the code stands depends on the request's version: what later versions tell once for the whole response,
earlier ones repeat for each partition. APIs that are not in the table below have one code at the top of their
response in all versions. An API that has neither raises `ValueError`, which tells the author of a rule that
it can't apply.

Beside the code stands what Kafka puts there: offsets and node ids of -1, no records, no members.

Source: `getErrorResponse` of Kafka's request classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_actors.errors import KafkaError
from kafka_actors.protocol import ApiKey, message_class
from kafka_actors.protocol.messages import (
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
)
from kafka_actors.protocol.schema import Request, Response


class Refused(Exception):
    """A broker refuses a request or a part of it. `code` is Kafka's; `text` may go into an error message."""

    def __init__(self, error: type[KafkaError], text: str | None = None) -> None:
        super().__init__(error.__name__, text)
        assert error.code is not None
        self.error = error
        self.code: int = error.code
        self.text = text


def error_response(request: Request[Any], version: int, code: int) -> Response:
    """Returns the response that has an error code in each place where one can be."""
    build = _BUILDERS.get(request.api_key)
    if build is not None:
        return build(request, version, code)
    cls: Any = message_class(request.api_key, "response")
    if "error_code" not in cls.__struct_fields__:
        raise ValueError(f"{cls.__name__} has no place for an error code")
    response: Response = cls(error_code=code)
    return response


def _produce(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(index=p.index, error_code=code, base_offset=-1)
                    for p in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: Any, version: int, code: int) -> Response:
    """Puts the code at the top since version 7, which has sessions to refuse; before, at each partition."""
    if version >= 7:
        return fetch.FetchResponse(error_code=code)
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    fetch.PartitionData(p.partition, error_code=code, high_watermark=-1, records=b"")
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                topic.name,
                [
                    list_offsets.ListOffsetsPartitionResponse(p.partition_index, code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: Any, version: int, code: int) -> Response:
    """Puts the code at each topic that is named; at the top too since version 13."""
    topics = [
        metadata.MetadataResponseTopic(error_code=code, name=t.name, topic_id=t.topic_id)
        for t in request.topics or ()
    ]
    return metadata.MetadataResponse(topics=topics, error_code=code if version >= 13 else 0)


def _offset_commit(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(p.partition_index, code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, version: int, code: int) -> Response:
    """Puts the code at each group since version 8, at the top since version 2; before, there is no place but each partition."""
    if version >= 8:
        groups = [offset_fetch.OffsetFetchResponseGroup(g.group_id, [], code) for g in request.groups]
        return offset_fetch.OffsetFetchResponse(groups=groups)
    if version >= 2:
        return offset_fetch.OffsetFetchResponse(error_code=code)
    return offset_fetch.OffsetFetchResponse(
        topics=[
            offset_fetch.OffsetFetchResponseTopic(
                topic.name,
                [
                    offset_fetch.OffsetFetchResponsePartition(i, -1, error_code=code)
                    for i in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _find_coordinator(request: Any, version: int, code: int) -> Response:
    """Puts the code at each key since version 4, else at the top."""
    if version < 4:
        return find_coordinator.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(key, -1, "", -1, code, None) for key in request.coordinator_keys
        ]
    )


def _describe_groups(request: Any, version: int, code: int) -> Response:
    """Puts the code at each group."""
    groups = [describe_groups.DescribedGroup(error_code=code, group_id=group) for group in request.groups]
    return describe_groups.DescribeGroupsResponse(groups=groups)


def _delete_groups(request: Any, version: int, code: int) -> Response:
    """Puts the code at each group."""
    return delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeletableGroupResult(group, code) for group in request.groups_names]
    )


def _create_topics(request: Any, version: int, code: int) -> Response:
    """Puts the code at each topic."""
    return create_topics.CreateTopicsResponse(
        topics=[create_topics.CreatableTopicResult(name=t.name, error_code=code) for t in request.topics]
    )


def _delete_topics(request: Any, version: int, code: int) -> Response:
    """Puts the code at each topic, by the name or id that the request has."""
    named = [delete_topics.DeletableTopicResult(name=n, error_code=code) for n in request.topic_names]
    return delete_topics.DeleteTopicsResponse(
        responses=named
        + [
            delete_topics.DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=code)
            for t in request.topics
        ]
    )


def _create_partitions(request: Any, version: int, code: int) -> Response:
    """Puts the code at each topic."""
    return create_partitions.CreatePartitionsResponse(
        results=[create_partitions.CreatePartitionsTopicResult(t.name, code) for t in request.topics]
    )


def _delete_records(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                topic.name,
                [
                    delete_records.DeleteRecordsPartitionResult(p.partition_index, -1, code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic.topic,
                [offset_for_leader_epoch.EpochEndOffset(code, p.partition) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(request: Any, version: int, code: int) -> Response:
    """Puts the code at each resource."""
    return describe_configs.DescribeConfigsResponse(
        results=[
            describe_configs.DescribeConfigsResult(code, None, r.resource_type, r.resource_name)
            for r in request.resources
        ]
    )


def _alter_configs(request: Any, version: int, code: int) -> Response:
    """Puts the code at each resource."""
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                code, None, r.resource_type, r.resource_name
            )
            for r in request.resources
        ]
    )


def _add_partitions_to_txn(request: Any, version: int, code: int) -> Response:
    """Puts the code at the top since version 4, in which leaders ask about many transactions; before, at each partition."""
    if version >= 4:
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=code)
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                topic.name,
                [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(i, code) for i in topic.partitions],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _txn_offset_commit(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    txn_offset_commit.TxnOffsetCommitResponsePartition(p.partition_index, code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(request: Any, version: int, code: int) -> Response:
    """Puts the code at each transactional id."""
    return describe_transactions.DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(code, i) for i in request.transactional_ids
        ]
    )


def _describe_producers(request: Any, version: int, code: int) -> Response:
    """Puts the code at each partition."""
    return describe_producers.DescribeProducersResponse(
        topics=[
            describe_producers.TopicResponse(
                topic.name, [describe_producers.PartitionResponse(i, code) for i in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


_BUILDERS: dict[int, Callable[[Any, int, int], Response]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
}
