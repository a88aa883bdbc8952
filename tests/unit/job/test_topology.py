"""Messages about connection actors: whole states that can be compared, and that come out as they went in."""

import msgspec
import pytest

from kafka_actors.job.messages import pack, unpack
from kafka_actors.job.topology import ConnectionReport, ConnectionWanted, Topology

WANTED = ConnectionWanted("node-1", 2, "broker-2", 9092)


def test_they_come_out_as_they_went_in():
    told = Topology(7, [WANTED, ConnectionWanted("node-2", 0, "broker-0", 9092)])
    assert unpack(pack(told), Topology) == told
    report = ConnectionReport("node-1", 2, "broker-2", 9092, 3)
    assert unpack(pack(report), ConnectionReport) == report


def test_a_wish_is_a_value_that_can_be_looked_up():
    """The supervisor compares what runs with what is wanted, broker 0 included."""
    same = ConnectionWanted("node-1", 2, "broker-2", 9092)
    assert {WANTED: "runs"}[same] == "runs"
    assert ConnectionWanted("node-1", 0, "b", 1) != ConnectionWanted("node-1", 1, "b", 1)
    assert ConnectionWanted("node-1", 2, "moved", 9092) != WANTED


def test_another_message_is_refused():
    with pytest.raises(msgspec.ValidationError):
        unpack(pack(WANTED), ConnectionReport)
    with pytest.raises(msgspec.ValidationError):
        unpack(pack(ConnectionReport("n", 1, "h", 1, 1)), Topology)


def test_nobody_changes_one_that_was_told():
    with pytest.raises(AttributeError):
        WANTED.host = "elsewhere"
