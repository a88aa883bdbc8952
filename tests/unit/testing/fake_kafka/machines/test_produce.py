"""Produce and InitProducerId."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from crc32c import crc32c
from fakes.fake_wire import NOW_MS, Wire, record_batch

from kafka_actors import errors
from kafka_actors.protocol import ZERO_UUID, ProduceRequest
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.records.batch import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, LOG_OVERHEAD


def put(
    wire: Wire,
    data: bytes | None,
    *,
    topic: str = "t",
    acks: int = -1,
    version: int = 12,
    node: int = 1,
    topic_id: Any = ZERO_UUID,
) -> Any:
    request = ProduceRequest(
        acks=acks, topic_data=[TopicProduceData(topic, topic_id, [PartitionProduceData(0, data)])]
    )
    answer = wire.ask(request, version, f"node{node}", node)
    (found,) = answer.responses[0].partition_responses
    return found


def test_a_batch_is_appended_and_a_duplicate_is_not() -> None:
    wire = Wire(topics={"t": 1})
    data = record_batch(b"a", b"b", producer=(0, 0, 0))
    assert put(wire, data).base_offset == 0
    again = put(wire, data)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, NOW_MS)
    gap = put(wire, record_batch(b"c", producer=(0, 0, 5)))
    assert (gap.error_code, gap.base_offset, gap.log_start_offset) == (45, -1, 0)
    assert put(wire, record_batch(b"c", producer=(0, 0, 2))).base_offset == 2


def test_errors_of_the_place() -> None:
    wire = Wire(2, topics={"t": 1})
    data = record_batch(b"a")
    assert put(wire, data, topic="none").error_code == errors.UnknownTopicOrPartitionError.code
    assert put(wire, data, acks=3).error_code == errors.InvalidRequiredAcksError.code
    assert put(wire, None).error_code == errors.InvalidRecordError.code
    other = put(wire, data, node=2)
    assert other.error_code == errors.NotLeaderOrFollowerError.code
    assert (other.current_leader.leader_id, other.current_leader.leader_epoch) == (1, 0)
    assert put(wire, data, node=2, version=9).current_leader.leader_id == -1


def test_version_13_names_topics_by_id() -> None:
    wire = Wire(topics={"t": 1})
    topic_id = wire.state.topics["t"].topic_id
    assert put(wire, record_batch(b"a"), topic="", topic_id=topic_id, version=13).error_code == 0
    unknown = put(wire, record_batch(b"a"), topic="", topic_id=wire.state.new_uuid(), version=13)
    assert unknown.error_code == errors.UnknownTopicIdError.code


def test_acks_all_needs_the_replicas_in_sync() -> None:
    wire = Wire(2)
    wire.state.create_topic("t", [[1, 2]], {"min.insync.replicas": "2"})
    wire.state.set_alive(2, False)
    assert put(wire, record_batch(b"a")).error_code == errors.NotEnoughReplicasError.code
    assert put(wire, record_batch(b"a"), acks=1).error_code == 0


@pytest.mark.parametrize(("release", "code"), [((3, 6), errors.NotEnoughReplicasError.code), ((3, 7), 0)])
def test_before_3_7_more_replicas_may_be_needed_in_sync_than_there_are(
    release: tuple[int, int], code: int
) -> None:
    wire = Wire(release=release)
    wire.state.create_topic("t", [[1]], {"min.insync.replicas": "2"})
    assert put(wire, record_batch(b"a"), version=8).error_code == code
    assert put(wire, record_batch(b"a"), version=8, acks=1).error_code == 0


def test_bad_records_are_named() -> None:
    wire = Wire()
    wire.state.create_topic("t", [[1]], {"cleanup.policy": "compact"})
    found = put(wire, record_batch(b"a", b"b", keys=[b"k", None]))
    assert found.error_code == errors.InvalidRecordError.code
    assert [e.batch_index for e in found.record_errors] == [1]
    assert found.error_message


def sealed(data: bytes) -> bytes:
    """A batch whose checksum is that of its bytes."""
    return data[:CRC_AT] + crc32c(data[ATTRIBUTES_AT:]).to_bytes(4) + data[ATTRIBUTES_AT:]


TWO = record_batch(b"a", b"b")
LAST_DELTA_AT, COUNT_AT = 23, 57


def with_codec(body: bytes, codec: int) -> bytes:
    data = TWO[:8] + (HEADER_SIZE - LOG_OVERHEAD + len(body)).to_bytes(4) + TWO[12:HEADER_SIZE] + body
    return sealed(data[: ATTRIBUTES_AT + 1] + bytes([codec]) + data[ATTRIBUTES_AT + 2 :])


@pytest.mark.parametrize(
    "data",
    [
        sealed(TWO[:HEADER_SIZE] + b"\xff" * (len(TWO) - HEADER_SIZE)),
        sealed(TWO[:LAST_DELTA_AT] + (2).to_bytes(4) + TWO[27:COUNT_AT] + (3).to_bytes(4) + TWO[61:]),
        sealed(TWO[:LAST_DELTA_AT] + (0).to_bytes(4) + TWO[27:COUNT_AT] + (1).to_bytes(4) + TWO[61:]),
        with_codec(gzip.compress(TWO[HEADER_SIZE:-8] * 2), 1),
        with_codec(b"no gzip", 1),
    ],
    ids=["garbage", "too few records", "too many", "offsets twice", "no compression"],
)
def test_a_batch_whose_records_are_not_those_of_its_header_is_refused(data: bytes) -> None:
    wire = Wire(topics={"t": 1})
    assert put(wire, data).error_code == errors.InvalidRecordError.code
    assert wire.state.partition("t", 0).log.end_offset == 0
    assert put(wire, with_codec(gzip.compress(TWO[HEADER_SIZE:]), 1)).error_code == 0


def test_under_log_append_time_the_answer_has_the_time() -> None:
    wire = Wire()
    wire.state.create_topic("t", [[1]], {"message.timestamp.type": "LogAppendTime"})
    wire.pass_time(2.0)
    assert put(wire, record_batch(b"a")).log_append_time_ms == NOW_MS + 2_000


GOOD = record_batch(b"a")


@pytest.mark.parametrize(
    ("data", "version", "error"),
    [
        (b"", 12, errors.InvalidRecordError),
        (GOOD + GOOD, 12, errors.InvalidRecordError),
        (GOOD[:16] + b"\x01" + GOOD[17:], 12, errors.InvalidRecordError),
        (GOOD[:8] + b"\0\0\0\x01" + GOOD[12:], 12, errors.CorruptMessageError),
        (GOOD[:22] + b"\x04" + GOOD[23:], 6, errors.UnsupportedCompressionTypeError),
    ],
)
def test_data_that_is_not_one_batch_of_the_format_is_refused_before_the_log_sees_it(
    data: bytes, version: int, error: type[errors.KafkaError]
) -> None:
    wire = Wire(topics={"t": 1})
    found = put(wire, data, version=version)
    assert (found.error_code, found.log_start_offset) == (error.code, -1)
