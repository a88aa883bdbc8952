"""The protocol's requests that a `Broker`'s arguments make: grouped by topic, in the order given."""

from __future__ import annotations

from kafka_actors.protocol import encode
from kafka_actors.reference import broker
from kafka_actors.types import EARLIEST, LATEST


def test_a_fetch_groups_partitions_by_topic() -> None:
    request = broker.fetch_request(
        [
            broker.PartitionFetchRequest("a", 1, 10),
            broker.PartitionFetchRequest("b", 0, 20, max_bytes=5),
            broker.PartitionFetchRequest("a", 0, 30),
        ],
        timeout=100,
        min_bytes=7,
    )
    found = [(t.topic, [(p.partition, p.fetch_offset) for p in t.partitions]) for t in request.topics]
    assert found == [("a", [(1, 10), (0, 30)]), ("b", [(0, 20)])]
    assert (request.max_wait_ms, request.min_bytes) == (100, 7)
    assert request.topics[1].partitions[0].partition_max_bytes == 5


def test_offsets_are_looked_up_as_a_client() -> None:
    request = broker.list_offsets_request(
        [broker.PartitionOffsetRequest("a", 0), broker.PartitionOffsetRequest("a", 1, EARLIEST)]
    )
    assert request.replica_id == -1
    assert [p.timestamp for p in request.topics[0].partitions] == [LATEST, EARLIEST]


def test_commits_and_fetches_of_offsets_can_be_encoded() -> None:
    commit = broker.offset_commit_request(
        "g", 3, "m", [broker.PartitionOffsetCommitRequest("a", 0, 5, "note", 2)]
    )
    partition = commit.topics[0].partitions[0]
    assert (partition.committed_offset, partition.committed_metadata) == (5, "note")
    assert partition.committed_leader_epoch == 2
    fetch = broker.offset_fetch_request("g", [broker.PartitionOffsetFetchRequest("a", 1)])
    assert fetch.topics is not None
    assert fetch.topics[0].partition_indexes == [1]
    assert encode(commit, 7)
    assert encode(fetch, 7)


def test_metadata_is_of_all_topics_or_of_names_as_text_or_bytes() -> None:
    assert broker.metadata_request_for(None).topics is None
    topics = broker.metadata_request_for(["a", b"b"]).topics
    assert topics is not None
    assert [topic.name for topic in topics] == ["a", "b"]
    assert not broker.metadata_request_for([]).allow_auto_topic_creation
