"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from fakes.fake_wire import NOW_MS, Wire, record_batch

from kafka_actors import errors
from kafka_actors.protocol import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafka_actors.testing.fake_kafka.machines.partition_log import LogLimits
from kafka_actors.testing.fake_kafka.machines.record_batches import parse


def with_records() -> Wire:
    wire = Wire(2, topics={"t": 1})
    log = wire.state.topics["t"].partitions[0].log
    log.append(
        parse(record_batch(b"", b"", b"", timestamps=[NOW_MS, NOW_MS + 9, NOW_MS + 5])),
        0,
        LogLimits(),
        NOW_MS,
    )
    return wire


def looked_up(
    wire: Wire,
    timestamp: int,
    version: int = 9,
    *,
    epoch: int = -1,
    node: int = 1,
    replica: int = -1,
    twice: bool = False,
) -> tuple[int, int, int, int]:
    part = ListOffsetsPartition(0, epoch, timestamp)
    request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic("t", [part] * (1 + twice))])
    (found,) = wire.ask(request, version, f"n{node}", node).topics[0].partitions
    return found.error_code, found.offset, found.timestamp, found.leader_epoch


def test_offsets_of_the_ends_and_of_times() -> None:
    wire = with_records()
    assert looked_up(wire, -1) == (0, 3, -1, 0)
    assert looked_up(wire, -2) == (0, 0, -1, 0)
    assert looked_up(wire, -4) == (0, 0, -1, 0)
    assert looked_up(wire, -5) == (0, -1, -1, -1)
    assert looked_up(wire, -3) == (0, 1, NOW_MS + 9, 0)
    assert looked_up(wire, NOW_MS + 1) == (0, 1, NOW_MS + 9, 0)
    assert looked_up(wire, NOW_MS + 10) == (0, -1, -1, -1)
    assert looked_up(wire, -1, 3) == (0, 3, -1, -1), "without an epoch before version 4"


def test_errors_of_look_ups() -> None:
    wire = with_records()
    for timestamp, version in [(-3, 6), (-4, 7), (-5, 8), (-9, 9)]:
        assert looked_up(wire, timestamp, version)[0] == errors.UnsupportedVersionError.code
    assert looked_up(wire, -1, epoch=4)[0] == errors.UnknownLeaderEpochError.code
    assert looked_up(wire, -1, node=2)[0] == errors.NotLeaderOrFollowerError.code
    assert looked_up(wire, -1, twice=True)[0] == errors.InvalidRequestError.code
    wire.state.topics["t"].partitions[0].replicas.append(2)
    assert looked_up(wire, -1, node=2, replica=-2)[:2] == (0, 3), "a debugging consumer may ask a follower"


def test_ends_of_leader_epochs() -> None:
    wire = with_records()

    def end(epoch: int, current: int = -1, node: int = 1) -> tuple[int, int, int]:
        topic = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, current, epoch)])
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        (found,) = wire.ask(request, 4, f"n{node}", node).topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    assert end(0) == (0, 0, 3)
    assert end(5) == (0, -1, -1)
    wire.state.move_leader("t", 0, 1)
    assert end(0) == (0, 0, 3)
    assert end(1) == (0, 1, 3)
    assert end(0, current=0) == (errors.FencedLeaderEpochError.code, -1, -1)
    assert end(0, node=2) == (errors.NotLeaderOrFollowerError.code, -1, -1)
