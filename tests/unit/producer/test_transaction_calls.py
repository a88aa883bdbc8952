"""Committed offsets of a group, asked until no transaction moves them."""

import asyncio
from types import SimpleNamespace

import pytest

from kafka_actors.errors import (
    DisconnectedError,
    GroupAuthorizationFailedError,
    UnrecognizedBrokerVersion,
)
from kafka_actors.group.commit_metadata import pack
from kafka_actors.producer.transaction_calls import STABLE_SINCE, stable_offsets
from kafka_actors.protocol import FindCoordinatorRequest, FindCoordinatorResponse, OffsetFetchResponse
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

MARKER = TopicPartition("scored", 0)
UNSTABLE, MOVED, LOADING, DENIED = 88, 16, 14, 30


def offsets(offset=-1, code=0, metadata="note"):
    part = OffsetFetchResponsePartitions(0, offset, metadata=metadata, error_code=code)
    topic = OffsetFetchResponseTopics(name="scored", partitions=[part])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


class Client:
    """Answers OffsetFetch with these in turn; coordinators are 7, 8 … `asked`: the nodes, requests and lowest versions."""

    config = SimpleNamespace(retry_backoff_ms=0, retry_backoff_max_ms=0)

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.coordinators = iter(range(7, 99))

    def least_loaded_node(self):
        return 1

    async def send(self, node, request, *, min_version, max_version):
        self.asked.append((node, request, min_version))
        if isinstance(request, FindCoordinatorRequest):
            found = Coordinator(key=request.coordinator_keys[0], node_id=next(self.coordinators))
            return FindCoordinatorResponse(coordinators=[found])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def now(self):
        return 0.0

    def fetch(self):
        return asyncio.run(stable_offsets(self, "g", [MARKER], lambda: 0.5))


def test_the_groups_coordinator_is_asked_for_stable_offsets():
    client = Client(offsets(3))
    assert client.fetch() == {MARKER: OffsetAndMetadata(3, "note", -1)}
    (any_node, find, _), (node, fetch, lowest) = client.asked
    assert (any_node, find.key_type, find.coordinator_keys) == (1, 0, ["g"])
    assert (node, fetch.require_stable, lowest) == (7, True, STABLE_SINCE)


def test_what_a_transaction_adds_to_the_committers_text_is_taken_off():
    metadata = pack("note", None, transaction="4/0/1")
    assert metadata != "note"
    assert Client(offsets(3, metadata=metadata)).fetch() == {MARKER: OffsetAndMetadata(3, "note", -1)}


def test_a_partition_without_an_offset_has_none():
    assert Client(offsets()).fetch() == {}


def test_while_a_transaction_moves_them_they_are_asked_for_again():
    client = Client(offsets(code=UNSTABLE), offsets(code=UNSTABLE), offsets(4))
    assert client.fetch()[MARKER].offset == 4
    assert [node for node, *_ in client.asked] == [1, 7, 7, 7]


@pytest.mark.parametrize("lost", [offsets(code=MOVED), DisconnectedError("gone")])
def test_another_coordinator_is_found_where_it_has_moved_or_is_gone(lost):
    client = Client(lost, offsets(code=LOADING), offsets(4))
    assert client.fetch()[MARKER].offset == 4
    assert [node for node, *_ in client.asked] == [1, 7, 1, 8, 8]


def test_an_error_that_no_retry_mends_is_raised():
    with pytest.raises(GroupAuthorizationFailedError):
        Client(offsets(code=DENIED)).fetch()


def test_a_broker_that_knows_no_stable_offsets_is_an_error():
    """Offsets that it answers may be about to change."""
    with pytest.raises(UnrecognizedBrokerVersion):
        Client(UnrecognizedBrokerVersion("too old")).fetch()
