"""The producer's loop: when something in it fails that should not, and when a leader has no address."""

import asyncio

import pytest

from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import (
    ConnectionFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.producer.futures import RecordFuture, wait_all
from kafka_actors.producer.machines.sender import ConnectNode
from kafka_actors.producer.producer_io import ProducerIO
from kafka_actors.protocol import MetadataResponse
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_actors.types import TopicPartition


@pytest.mark.parametrize("where", ["a turn", "a task"])
def test_nobody_waits_in_vain_for_a_producer_that_failed(where, monkeypatch):
    async def main():
        core = ProducerIO(build(ProducerConfig, {}))
        core._loop = core.intake.loop = asyncio.get_running_loop()
        result, index = core.intake.append_one(TopicPartition("t", 0), None, b"x", None, 0)
        if where == "a turn":

            def fail(*_):
                raise ValueError("a mistake")

            monkeypatch.setattr(core._sender, "poll", fail)
            core.nudge()
        else:

            async def failing():
                raise ValueError("a mistake")

            core._start(failing())
        with pytest.raises(UsageError, match="the producer failed: ValueError: a mistake"):
            async with asyncio.timeout(10):
                await RecordFuture(result, index, 0)
        with pytest.raises(UsageError, match="the producer failed: ValueError: a mistake"):
            core.intake.append_one(TopicPartition("t", 0), None, b"x", None, 0)

    asyncio.run(main())


def test_a_flush_that_looks_while_a_failure_is_told_neither_ends_nor_passes_over_it(monkeypatch):
    """Its thread may look at any moment: what it doesn't raise, it has to wait for, else a sink's offsets are committed without the records."""
    found = []

    async def main():
        core = ProducerIO(build(ProducerConfig, {}))

        def look(*_):
            found.append((wait_all(list(core.intake.unsettled), deadline=0.0), len(core.unseen._recent)))

        add = core.unseen.add
        monkeypatch.setattr(core.unseen, "add", lambda result: (look(), add(result), look()))
        core._loop = core.intake.loop = asyncio.get_running_loop()
        result, index = core.intake.append_one(TopicPartition("t", 0), None, b"x", None, 0)
        RecordFuture(result, index, 0).add_done_callback(look)
        await core.close(UsageError("over"))
        look()

    asyncio.run(main())
    assert found == [(1, 0), (1, 0), (1, 1), (0, 1)]


def metadata(brokers, leader, epoch):
    """An answer that lists these brokers, and t-0 with its leader."""
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in brokers],
        topics=[MetadataResponseTopic(name="t", partitions=[partition])],
    )


def test_a_leader_that_the_brokers_listed_last_lack_is_asked_for_and_not_connected_to():
    async def main():
        core = ProducerIO(build(ProducerConfig, {}))
        core._loop = core.intake.loop = asyncio.get_running_loop()
        core._sender.identify(1, 0)
        cluster, done = core.client.cluster, []
        core._carry_out = done.append
        core.intake.append_one(TopicPartition("t", 0), None, b"x", None, 0)
        core.intake.close_all()
        cluster.update_metadata(metadata([1, 2, 3], leader=3, epoch=7))
        cluster.update_metadata(metadata([1, 2], leader=2, epoch=6))  # of a broker that lags
        core._turn()
        assert done == [RefreshMetadata()]
        done.clear()
        cluster.update_metadata(metadata([1, 2, 3], leader=3, epoch=7))
        core._turn()
        assert done == [ConnectNode(3)]
        await core.close(UsageError("over"))

    asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"transactional_id": "t"}])
def test_what_stands_in_the_way_of_a_partition_is_named(options, monkeypatch):
    async def main():
        core, failed = ProducerIO(build(ProducerConfig, options)), {}
        monkeypatch.setattr(core.client._pool, "error", failed.get)
        cluster, partition = core.client.cluster, TopicPartition("t", 0)
        assert core._obstacle(partition) == "no leader of it is known"
        gone = MetadataResponseTopic(name="t", error_code=UnknownTopicOrPartitionError.code)
        cluster.update_metadata(MetadataResponse(brokers=metadata([1], 1, 1).brokers, topics=[gone]))
        assert "no leader of it is known: UNKNOWN_TOPIC_OR_PARTITION (3)" in core._obstacle(partition)
        cluster.update_metadata(metadata([1, 2], leader=2, epoch=1))
        assert core._obstacle(partition) == ""
        core._no_id = CoordinatorLoadInProgressError("loading", request="InitProducerId")
        if core.transactions is not None:
            core.transactions.machine.last_error = CoordinatorNotAvailableError(request="AddPartitionsToTxn")
        expected = "InitProducerId" if core.transactions is None else "AddPartitionsToTxn"
        assert expected in core._obstacle(partition)
        failed[2] = ConnectionFailedError("b2:9092: refused")
        assert core._obstacle(partition) == "broker 2: b2:9092: refused"
        await core.close(UsageError("over"))

    asyncio.run(main())
