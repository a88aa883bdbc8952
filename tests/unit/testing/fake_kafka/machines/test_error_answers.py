"""Responses that carry an error code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafka_actors.protocol import ApiKey, decode, encode, message_class
from kafka_actors.protocol.messages import (
    create_topics,
    delete_records,
    fetch,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
)
from kafka_actors.testing.fake_kafka.machines.api_ranges import api_ranges
from kafka_actors.testing.fake_kafka.machines.error_answers import error_response

RANGES = api_ranges((4, 1))
REQUESTS: dict[int, Any] = {
    ApiKey.PRODUCE: produce.ProduceRequest(
        topic_data=[produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(3)])]
    ),
    ApiKey.FETCH: fetch.FetchRequest(topics=[fetch.FetchTopic("t", partitions=[fetch.FetchPartition(3)])]),
    ApiKey.LIST_OFFSETS: list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(3)])]
    ),
    ApiKey.OFFSET_COMMIT: offset_commit.OffsetCommitRequest(
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                "t", partitions=[offset_commit.OffsetCommitRequestPartition(3)]
            )
        ]
    ),
    ApiKey.OFFSET_FETCH: offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup("g")],
        topics=[offset_fetch.OffsetFetchRequestTopic("t", [3])],
    ),
    ApiKey.CREATE_TOPICS: create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic("t")]),
    ApiKey.DELETE_RECORDS: delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic("t", [delete_records.DeleteRecordsPartition(3)])]
    ),
}


@pytest.mark.parametrize("api", RANGES, ids=lambda api: ApiKey(api).name)
def test_an_error_has_a_place_in_each_version(api: int) -> None:
    request = REQUESTS.get(api) or message_class(api, "request")()
    for version in range(RANGES[api][0], RANGES[api][1] + 1):
        response = error_response(request, version, 27)
        sent = encode(response, version)
        if api in REQUESTS:
            assert 27 in codes(decode(api, version, "response", sent))


def codes(value: Any) -> set[int]:
    """All error codes in a response."""
    plain = msgspec.to_builtins(value)
    found: set[int] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if part.get("error_code"):
                found.add(part["error_code"])
            for inner in part.values():
                walk(inner)
        elif isinstance(part, list):
            for inner in part:
                walk(inner)

    walk(plain)
    return found
