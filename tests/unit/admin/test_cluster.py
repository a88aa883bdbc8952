"""Description of a cluster: by brokers that know the request, by older ones, and by the bits of operations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.answering import AnsweringClient
from msgspec.structs import replace

from kafka_actors.admin import ClusterDescription
from kafka_actors.admin.cluster import UNKNOWN_OPERATIONS, describe_cluster, operations_of
from kafka_actors.admin.requests import CallDeadline
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.errors import (
    ClusterAuthorizationFailedError,
    NodeNotReadyError,
    UnsupportedVersionError,
)
from kafka_actors.protocol import DescribeClusterResponse
from kafka_actors.protocol.messages.describe_cluster import DescribeClusterBroker


def described(client: AnsweringClient, with_operations: bool = False) -> ClusterDescription:
    asking: Any = client
    return asyncio.run(describe_cluster(asking, with_operations, CallDeadline(asking)))


def response(*ids: int, **more: Any) -> DescribeClusterResponse:
    brokers = [DescribeClusterBroker(node, f"b{node}", 9000 + node, "east" if node else None) for node in ids]
    return DescribeClusterResponse(cluster_id="c", brokers=brokers, **more)


def test_brokers_are_sorted_by_id_and_the_controller_is_one_of_them() -> None:
    found = described(AnsweringClient(response(2, 0, 1, controller_id=0)))
    assert [node.node_id for node in found.nodes] == [0, 1, 2]
    assert found.nodes[2] == BrokerMetadata(2, "b2", 9002, "east")
    assert found.controller == BrokerMetadata(0, "b0", 9000, None)
    assert found.cluster_id == "c"


@pytest.mark.parametrize("controller", [-1, 7], ids=["none", "one that is not among the brokers"])
def test_a_controller_that_is_not_there_is_none(controller: int) -> None:
    assert described(AnsweringClient(response(1, controller_id=controller))).controller is None


@pytest.mark.parametrize(
    ("with_operations", "bits", "operations"),
    [(False, UNKNOWN_OPERATIONS, None), (True, 1 << 8 | 1 << 3, {"DESCRIBE", "READ"}), (True, 0, set())],
    ids=["not wanted", "some", "none"],
)
def test_operations_are_of_the_principal_and_none_where_they_are_not_wanted(
    with_operations: bool, bits: int, operations: set[str] | None
) -> None:
    client = AnsweringClient(response(1, cluster_authorized_operations=bits))
    found = described(client, with_operations).authorized_operations
    assert found == (None if operations is None else frozenset(operations))
    assert [request.include_cluster_authorized_operations for request in client.asked] == [with_operations]


def test_bits_of_operations_that_a_later_kafka_adds_are_left_out() -> None:
    """An Int32 is signed: bit 31 alone is the mark of what was not wanted, with others it is a bit like any other."""
    assert operations_of(1 << 30) == frozenset()
    assert operations_of(UNKNOWN_OPERATIONS | 1 << 8) == frozenset({"DESCRIBE"})
    assert operations_of(1 << 12) == frozenset({"IDEMPOTENT_WRITE"})


def test_brokers_before_kafka_2_8_are_described_by_their_metadata_without_operations() -> None:
    client = AnsweringClient(UnsupportedVersionError())
    client.snapshot = replace(client.snapshot, cluster_id="old")
    found = described(client, with_operations=True)
    assert (found.cluster_id, found.authorized_operations) == ("old", None)
    assert found.controller == BrokerMetadata(1, "b", 9092)
    assert [node.node_id for node in found.nodes] == [1, 2]


def test_metadata_without_a_controller_describes_none() -> None:
    client = AnsweringClient(UnsupportedVersionError())
    client.snapshot = replace(client.snapshot, controller_id=None)
    assert described(client).controller is None


def test_an_error_of_the_broker_is_raised_with_its_words() -> None:
    refused = response(error_code=31, error_message="not for User:a")
    with pytest.raises(ClusterAuthorizationFailedError, match="not for User:a"):
        described(AnsweringClient(refused))


def test_a_broker_that_cannot_answer_now_is_tried_again() -> None:
    client = AnsweringClient(NodeNotReadyError("going down"), response(1, controller_id=1))
    assert described(client).controller == BrokerMetadata(1, "b1", 9001, "east")
    assert len(client.asked) == 2


def test_broker_0_may_be_the_controller_of_an_old_cluster() -> None:
    client = AnsweringClient(UnsupportedVersionError())
    client.snapshot = replace(client.snapshot, brokers={0: BrokerMetadata(0, "b", 9092)}, controller_id=0)
    assert described(client).controller == BrokerMetadata(0, "b", 9092)
