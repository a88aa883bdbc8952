"""The fake cluster as a machine: frames, connections, versions, time."""

from __future__ import annotations

from random import Random

import pytest
from fakes.fake_wire import Wire, record_batch

from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsRequest,
    FetchRequest,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    decode_api_versions,
    frame,
)
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.testing.fake_kafka.machines.calls import Delay, RequestRule

ASK = InitProducerIdRequest(transactional_id=None)


def test_requests_may_come_in_parts_and_together() -> None:
    wire = Wire()
    wire.send(ASK, 4)
    link = wire._links["client"]
    more = frame(ApiKey.INIT_PRODUCER_ID, 4, 2, "c", ASK)
    wire._asked["client"] += [(ASK, 4)] * 300
    for part in (more[:3], more[3:20], more[20:] + more * 299):
        wire.cluster.received(link, part, 0.0)
    wire.poll()
    assert [wire.take().producer_id for _ in range(301)] == list(range(301))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x08" + b"\0\x01\0\x63" + b"\0\0\0\x01",  # Fetch of a version that is not known
        b"\0\0\0\x08" + b"\x03\xe8\0\0" + b"\0\0\0\x01",  # API 1000
        b"\x7f\xff\xff\xff",  # longer than any request
        b"\0\0\0\x02\0\0",
        b"\0\0\0\x0b" + b"\0\x03\0\x04" + b"\0\0\0\x01" + b"\0\x01c",  # Metadata without a body
    ],
)
def test_what_a_broker_does_not_understand_closes_the_connection(data: bytes) -> None:
    wire = Wire()
    wire.send(ASK, 4)
    wire.cluster.received(wire._links["client"], data, 0.0)
    wire.poll()
    assert wire.closed == {"client"}


def test_bytes_behind_a_request_are_ignored() -> None:
    wire = Wire(topics={"t": 1})
    wire.send(ASK, 4)
    wire.take()
    wire._asked["client"].append((MetadataRequest(), 9))
    data = bytearray(frame(ApiKey.METADATA, 9, 2, "c", MetadataRequest(topics=None)) + b"\1\0\0")
    data[:4] = (len(data) - 4).to_bytes(4)
    wire.cluster.received(wire._links["client"], bytes(data), 0.0)
    wire.poll()
    assert [topic.name for topic in wire.take().topics] == ["t"]


def test_a_release_speaks_its_versions_and_names_them() -> None:
    wire = Wire(release=(2, 8))
    ranges = {v.api_key: v.max_version for v in wire.ask(ApiVersionsRequest(), 3).api_keys}
    assert ranges[ApiKey.FETCH] == 12
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT not in ranges
    wire.send(FetchRequest(), 13)
    assert wire.closed == {"client"}


def test_a_broker_speaks_other_versions_than_its_release() -> None:
    wire = Wire(2)
    wire.cluster.versions.set(ApiKey.FETCH, (4, 12), 2)
    wire.cluster.versions.set(ApiKey.METADATA, None, None)
    wire.cluster.versions.set(ApiKey.API_VERSIONS, (0, 2), 1)

    def told(node: int) -> dict[int, int]:
        return {
            v.api_key: v.max_version for v in wire.ask(ApiVersionsRequest(), 2, f"v{node}", node).api_keys
        }

    assert (told(1)[ApiKey.FETCH], told(2)[ApiKey.FETCH]) == (18, 12)
    assert ApiKey.METADATA not in {**told(1), **told(2)}
    wire.send(FetchRequest(), 13, "two", node=2)
    wire.send(MetadataRequest(), 9, "one")
    assert wire.closed == {"one", "two"}
    wire.send(ApiVersionsRequest("t", "1"), 3, "newer")
    assert wire.raw("newer")[8:10] == b"\0\x23", "UNSUPPORTED_VERSION in version 0"
    assert wire.cluster.counts[ApiKey.API_VERSIONS] == 5


def test_connections_are_counted() -> None:
    wire = Wire(2)
    for on, node in (("a", 1), ("b", 1), ("c", 2)):
        wire.ask(ASK, 4, on, node)
    wire.cluster.disconnected(wire._links["a"], 0.0)
    assert (wire.cluster.connections(), wire.cluster.connections(1)) == (2, 1)
    assert (wire.cluster.connections(closed=True), wire.cluster.connections(1, closed=True)) == (3, 2)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    for release, named in [((2, 1), 0), ((3, 9), 1)]:
        wire = Wire(release=release)
        wire.send(ASK, 1)
        wire.take()
        data = bytearray(frame(ApiKey.API_VERSIONS, 0, 9, "c", ApiVersionsRequest()))
        data[6:8] = b"\0\x63"
        wire.cluster.received(wire._links["client"], bytes(data), 0.0)
        wire.poll()
        answer = decode_api_versions(99, wire.raw()[8:])
        assert answer.error_code == 35
        assert len(answer.api_keys) == named
        assert not wire.closed


def test_a_closed_connection_gets_nothing_more() -> None:
    wire = Wire(topics={"t": 1})
    wire.send(FetchRequest(max_wait_ms=1_000, min_bytes=1), 4)
    link = wire._links["client"]
    wire.cluster.disconnected(link, 0.0)
    wire.cluster.received(link, b"more", 0.0)
    wire.pass_time(2)
    wire.cluster.close_links()
    assert wire.poll() is None


def test_a_connection_that_is_idle_for_too_long_is_closed() -> None:
    wire = Wire(topics={"t": 1}, config={"connections.max.idle.ms": 600_000})
    wire.ask(ASK, 4, on="idle")
    wire.ask(ASK, 4, on="used")
    wire.cluster.rules.append(RequestRule(ApiKey.INIT_PRODUCER_ID, Delay(500.0)))
    wire.send(ASK, 4, on="waits")
    wire.pass_time(300)
    wire.ask(ASK, 4, on="used")
    wire.pass_time(299)
    assert not wire.closed
    wire.pass_time(2)
    assert wire.closed == {"idle"}
    wire.pass_time(300)
    assert wire.closed == {"idle", "used"}
    wire.pass_time(200)
    assert wire.closed == {"idle", "used", "waits"}, "it was used when the response went"
    assert wire.poll() is None


def test_a_stopped_broker_s_connections_close() -> None:
    wire = Wire(2, topics={"t": 2})
    assert wire.ask(ASK, 4, on="one", node=1) is not None
    assert wire.ask(ASK, 4, on="two", node=2) is not None
    wire.cluster.stop_node(1)
    wire.poll()
    assert wire.closed == {"one"}
    assert [n.node_id for n in wire.state.live] == [2]


def test_produce_without_acks_is_not_answered_and_an_error_closes() -> None:
    wire = Wire(topics={"t": 1})

    def unanswered(topic: str) -> ProduceRequest:
        data = PartitionProduceData(0, record_batch(b"v"))
        return ProduceRequest(acks=0, topic_data=[TopicProduceData(topic, partition_data=[data])])

    wire.send(unanswered("t"), 9)
    assert wire.ask(ASK, 4).error_code == 0
    assert wire.state.topics["t"].partitions[0].log.end_offset == 1
    wire.send(unanswered("none"), 9)
    assert wire.closed == {"client"}


def test_the_same_seed_makes_the_same_ids() -> None:
    first, second = (Wire(topics={"t": 3}, random=Random(5)) for _ in range(2))
    assert first.state.topics["t"].topic_id == second.state.topics["t"].topic_id
    assert first.state.cluster_id == second.state.cluster_id
