"""Records in bulk: which arguments each record gets, what is counted, and what is an error."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from kafka_actors.testing.produce import Produce


class Message:
    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self) -> int:
        return self._partition


class FakeProducer:
    """Delivers at `flush`; its queue is full at the records whose number is in `full`."""

    made: list[FakeProducer] = []
    error: Any = None
    left = 0
    full: tuple[int, ...] = ()

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.records: list[dict[str, Any]] = []
        self.polls: list[float] = []
        self._refused: set[int] = set()
        FakeProducer.made.append(self)

    def produce(self, topic: str, value: Any, *, on_delivery: Any, **arguments: Any) -> None:
        number = len(self.records)
        if number in self.full and number not in self._refused:
            self._refused.add(number)
            raise BufferError
        self.records.append({"topic": topic, "value": value, "delivered": on_delivery, **arguments})

    def poll(self, timeout: float) -> None:
        self.polls.append(timeout)

    def flush(self, timeout: float) -> int:
        for record in self.records:
            record.pop("delivered")(self.error, Message(record.get("partition", 0)))
        return self.left


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    monkeypatch.setattr(FakeProducer, "made", [])
    monkeypatch.setattr(confluent_kafka, "Producer", FakeProducer)
    return FakeProducer.made


def test_each_record_has_its_own_arguments(producers: list[FakeProducer]) -> None:
    counts = Produce("a:1")(
        "t",
        [b"x", None],
        partition=[2, 0],
        keys=["k", None],
        headers=[[("h", b"1")], None],
        timestamps=[5, 6],
    )
    assert counts == {2: 1, 0: 1}
    first, second = producers[0].records
    assert first == {
        "topic": "t",
        "value": b"x",
        "partition": 2,
        "key": "k",
        "headers": [("h", b"1")],
        "timestamp": 5,
    }
    assert second == {"topic": "t", "value": None, "partition": 0, "key": None, "timestamp": 6}


def test_one_partition_may_be_for_all(producers: list[FakeProducer]) -> None:
    assert Produce("a:1")("t", ["x", "y"], partition=3) == {3: 2}
    assert "key" not in producers[0].records[0]


def test_the_servers_may_be_known_only_later(producers: list[FakeProducer]) -> None:
    Produce(lambda: "late:1")("t", ["x"], compression="zstd", config={"linger.ms": 0})
    Produce(lambda: "late:1")("t", ["x"], bootstrap_servers="other:2")
    assert [p.settings["bootstrap.servers"] for p in producers] == ["late:1", "other:2"]
    assert (producers[0].settings["compression.type"], producers[0].settings["linger.ms"]) == ("zstd", 0)


def test_a_full_queue_is_waited_for_and_the_record_sent_once(
    producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProducer, "full", (1,))
    assert Produce("a:1")("t", ["x", "y"]) == {0: 2}
    assert [record["value"] for record in producers[0].records] == ["x", "y"]
    assert 0.1 in producers[0].polls


def test_a_record_that_a_broker_refuses_is_an_error(
    producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = confluent_kafka.KafkaError(confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE)
    monkeypatch.setattr(FakeProducer, "error", refused)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        Produce("a:1")("t", ["x"])
    assert raised.value.args[0] is refused


def test_records_that_nobody_acknowledged_are_an_error(
    producers: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProducer, "left", 2)
    with pytest.raises(TimeoutError, match="2 records to t were not acknowledged"):
        Produce("a:1")("t", ["x", "y"])
