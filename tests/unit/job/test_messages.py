"""Messages between a job's actors: each comes back as it was sent, others are refused, and errors survive the way."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import msgspec
import pytest
from fakes.errors import NoTextNorTravel

from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError, UnknownTopicOrPartitionError
from kafka_actors.job import messages
from kafka_actors.job.machines.timeline import TimelineEntry
from kafka_actors.job.messages import (
    ActorInfo,
    CallInHand,
    CommitEntry,
    CommitReply,
    CommitRequest,
    CoordinatorStatus,
    CrashReport,
    DeathsInCall,
    Drain,
    Grant,
    HeldReport,
    Identity,
    JobFailure,
    JobStart,
    Orders,
    Report,
    WorkerPlan,
    WorkerPong,
    WorkerProgress,
    failure_of,
    pack,
    packed_error,
    unpack,
)
from kafka_actors.job.status import GroupState, PartitionStatus
from kafka_actors.job.transactions import ProducerGrant, TransactionalIds, TransactionReport
from kafka_actors.types import ConsumerGroupMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("größe", 2**31 - 1)
ID = bytes(range(16))
DIED = DeathsInCall(P0, 5, 9, 2, "signal 9")
ENTRY = CommitEntry(P0, (3, 1), 2**63 - 1, 7, rewind=True, topic_id=ID)
MESSAGES: list[Any] = [
    Orders(
        (3, 9),
        [Grant(P0, (3, 1), 5, 7, 9, (2, 8), True, ID, [DIED]), Grant(P1, (3, 2))],
        [Drain(P1, (3, 2), (2, 4))],
        4.5,
        paused=True,
        hold=True,
        producer=ProducerGrant((3, 5)),
    ),
    Report(
        "worker-0.1",
        (3, 8),
        True,
        [HeldReport(P0, (3, 1), 5, 7, 9, 11, True, "behind a call", 4), HeldReport(P1, (3, 2))],
        records=2**40,
        failed=b"\x80\x04",
        latency={-3: 1, 40: 7},
        transactions=TransactionReport(session=(3, 5), committed=3),
    ),
    CommitRequest("worker-0.1", 4, [ENTRY], at_once=True, trace="00-1-2-01", session=(3, 5), done=True),
    CommitReply(4, [ENTRY], [P1], [(P0, "no answer")], ConsumerGroupMetadata("g", 4, "m", None)),
    CrashReport([CallInHand(P0, 5, 9)], "signal 9"),
    WorkerPlan(
        2, {"worker-0.1": 0.5}, ["worker-1.1"], True, False, 3, 1.5, True, silent=["w"], died=[DIED], roles=4
    ),
    CoordinatorStatus(
        GroupState("stable", 4, "m", None, 2, 7, 0.5, 3),
        [PartitionStatus("t", 0, None, None, 5, 9, 4, "free", "no leader", 0.5, None, 2)],
        {"worker-0.1": WorkerProgress(True, 5, 50, None, 1.5)},
        False,
        5,
        50,
        latency={40: 7},
        timeline=[TimelineEntry(number=1, at_s=1_700_000_000.0, kind="move", text="t-0")],
        unconfirmed=[P0],
        passed=[DIED],
    ),
    JobStart([P0, P1], [(P0, 9)]),
    JobStart([]),
    Identity("i", "m", TransactionalIds("g-n", 60_000, named=True)),
    ActorInfo(7, "n"),
    WorkerPong(3, None, True, b"\x81"),
    JobFailure("ValueError: x", b"\x80"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was_sent(message: Any) -> None:
    data = pack(message)
    assert unpack(data, type(message)) == message
    assert unpack(memoryview(data), type(message)) == message, "shared memory is read without a copy"


def test_every_message_that_travels_by_itself_is_among_those_above() -> None:
    tagged = {
        name
        for name, kind in inspect.getmembers(messages, inspect.isclass)
        if kind.__module__ == messages.__name__ and kind.__struct_config__.tag is not None
    }
    inside = {"CallInHand", "CommitEntry", "DeathsInCall", "Drain", "Grant", "HeldReport"}
    assert tagged - inside == {type(message).__name__ for message in MESSAGES}


def test_partitions_come_back_as_partitions_that_are_keys() -> None:
    """A plain tuple would be equal, and have no `topic`."""
    [entry] = unpack(pack(MESSAGES[2]), CommitRequest).entries
    assert entry.partition.topic == "t"
    reply = unpack(pack(MESSAGES[3]), CommitReply)
    assert (reply.refused[0].partition, reply.failed[0][0].topic) == (2**31 - 1, "t")


@pytest.mark.parametrize(
    "data",
    [
        pack(ActorInfo(7, "n")),
        pack(MESSAGES[0])[:-1],
        pack(MESSAGES[0]) + b"\x00",
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"type": "Orders", "version": [1, 2], "grants": [], "draining": []}),
        msgspec.msgpack.encode(
            {"type": "Orders", "version": [1], "grants": [], "draining": [], "lease_s": 1.0}
        ),
        msgspec.msgpack.encode(
            {
                "type": "Orders",
                "version": [1, 2],
                "grants": [],
                "draining": [{"type": "Drain", "partition": ["t", 0], "epoch": [1]}],
                "lease_s": 1.0,
            }
        ),
        msgspec.msgpack.encode(
            {"type": "Orders", "version": [1, 2], "grants": [], "draining": [], "lease_s": "long"}
        ),
    ],
    ids=[
        "another kind",
        "cut off",
        "too long",
        "empty",
        "no MessagePack",
        "a field too few",
        "half a version",
        "half an epoch",
        "a text",
    ],
)
def test_bytes_of_anything_else_are_no_orders(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack(data, Orders)


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    data = msgspec.msgpack.encode({"type": "ActorInfo", "pid": 7, "node": "n", "started_s": 1.0})
    assert unpack(data, ActorInfo) == ActorInfo(7, "n")


# ------------------------------------------------------------ errors


class Unpicklable(Exception):
    """It holds what stays in its process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.holds = lambda: None


class TwoArguments(Exception):
    """It can be pickled, and not be made again from its one argument."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(f"{text} ({code})")


def test_an_error_arrives_with_its_class_and_its_fields() -> None:
    error = UnknownTopicOrPartitionError("it is gone", topic="t", partition=3)
    found = pickle.loads(packed_error(error))
    assert type(found) is UnknownTopicOrPartitionError
    assert (found.topic, found.partition, str(found)) == ("t", 3, str(error))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unpicklable("no way"), "Unpicklable: no way"),
        (TwoArguments("wrong", 7), "TwoArguments: wrong (7)"),
        (NoTextNorTravel(), "NoTextNorTravel"),
    ],
)
def test_of_an_error_that_cannot_travel_the_text_arrives(error: Exception, text: str) -> None:
    found = pickle.loads(packed_error(error))
    assert type(found) is KafkaActorsError
    assert str(found) == text
    assert unpack(failure_of(error), JobFailure).text == text


def test_a_failure_has_a_text_beside_the_error_for_a_driver_that_lacks_its_class() -> None:
    failure = unpack(failure_of(KafkaTimeoutError("too late")), JobFailure)
    assert failure.text == "KafkaTimeoutError: too late"
    found = pickle.loads(failure.pickled)
    assert (type(found), str(found)) == (KafkaTimeoutError, "too late")
    assert unpack(failure_of(SystemExit(3)), JobFailure).text == "SystemExit: 3"
