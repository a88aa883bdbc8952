"""The network in memory that simulations run on (`tests/simulation/network.py`): our clients as they are, faults, a clock of its own."""

import asyncio

import pytest
from simulation.world import Simulation

from kafka_actors import AsyncAdmin, AsyncConsumer, AsyncProducer
from kafka_actors.errors import DeliveryTimeoutError, NoBrokersAvailable
from kafka_actors.protocol import ApiKey
from kafka_actors.testing.fake_kafka import HoldResponse


def test_same_seed_same_run():
    first, second = (_a_run(seed=5) for _ in range(2))
    assert first == second
    assert len(first[1]) == 30, (
        "records of a member that stood still, and of one that was killed, were read by the others"
    )


def test_another_seed_is_another_run():
    assert _a_run(seed=5)[0] != _a_run(seed=6)[0]


def _a_run(seed):
    with Simulation(seed) as world:
        kafka = world.kafka(3, topics={"t": 3})
        read = []

        async def consume(name):
            options = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000, "client_id": name}
            async with _consumer(kafka, group_id="g", **options) as consumer:
                while True:
                    batch = await consumer.poll_batch(timeout_ms=500)
                    if batch is not None:
                        read.extend(batch.column("value").to_pylist())

        async def main():
            for name in ("a", "b", "c"):
                world.start(name, consume(name))
            world.start("p", _produce(kafka, 30))
            await asyncio.sleep(2)
            world.freeze("a", 8)
            world.kill("b")
            kafka.kill(2)
            await asyncio.sleep(2)
            kafka.restart(2, new_port=True)
            await asyncio.sleep(30)

        world.run(main())
        assert not world.errors
        return world.network.trace, sorted(set(read))


async def _produce(kafka, count, topic="t"):
    async with AsyncProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=0) as producer:
        for number in range(count):
            await producer.send(topic, f"{number:03}".encode(), partition=number % 3)
            await asyncio.sleep(0.1)


def _consumer(kafka, **options):
    return AsyncConsumer(
        "t", bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", **options
    )


def test_a_response_that_breaks_off_is_asked_for_again():
    with Simulation(1) as world:
        kafka = world.kafka(1, topics={"t": 3})

        async def main():
            world.start("p", _produce(kafka, 30))
            for _ in range(20):
                await asyncio.sleep(0.2)
                world.network.cut(client="p", after_bytes=7)
            await asyncio.sleep(20)

        world.run(main())
        values = [record.value for partition in range(3) for record in kafka.records("t", partition)]
        assert sorted(values) == [f"{number:03}".encode() for number in range(30)], "each is there once"
        assert sum(event[1] == "ended" for event in world.network.trace) >= 10


def test_a_request_is_carried_out_after_its_connection_is_gone():
    with Simulation(1) as world:
        kafka = world.kafka(1, topics={"t": 1})

        async def main():
            limits = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 6_000}
            async with AsyncProducer(bootstrap_servers=kafka.bootstrap_servers, **limits) as producer:
                await (await producer.send("t", b"first"))
                world.network.hole(20)
                with pytest.raises(DeliveryTimeoutError):
                    await (await producer.send("t", b"late"))
            assert world.loop.time() < 20
            assert [record.value for record in kafka.records("t")] == [b"first"]
            await asyncio.sleep(21)
            assert [record.value for record in kafka.records("t")] == [b"first", b"late"], "it was on its way"

        world.run(main())


def test_a_new_connection_overtakes_one_that_is_held():
    with Simulation(1) as world:
        kafka = world.kafka(1, topics={"t": 1})

        async def main():
            options = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 20_000}
            async with AsyncProducer(bootstrap_servers=kafka.bootstrap_servers, **options) as producer:
                await (await producer.send("t", b"first"))
                world.network.hold(20)
                await (await producer.send("t", b"second"))
                assert world.loop.time() < 10, "it went over another connection"
                await asyncio.sleep(25)

        world.run(main())
        assert [record.value for record in kafka.records("t")] == [b"first", b"second"], (
            "once, though it came twice"
        )
        assert world.network.cluster.counts[ApiKey.PRODUCE] == 3


def test_a_connection_into_a_hole_is_given_up_and_the_reason_named():
    with Simulation(1) as world:
        kafka = world.kafka(1)

        async def main():
            world.network.hole(1_000)
            with pytest.raises(NoBrokersAvailable, match="no answer in time"):
                async with AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers, request_timeout_ms=30_000):
                    pass
            return world.loop.time()

        assert 29 < world.run(main()) < 60


def test_waiting_for_nothing_is_noticed():
    with Simulation(1) as world:

        async def main():
            await asyncio.get_running_loop().create_future()

        with pytest.raises(TimeoutError):
            world.run(main(), within=1e6)


def test_rules_of_the_fake_work_as_on_sockets():
    with Simulation(1) as world:
        kafka = world.kafka(1, topics={"t": 3})
        taken = kafka.on("Produce", HoldResponse())

        async def main():
            sending = world.start("p", _produce(kafka, 3))
            await asyncio.sleep(10)
            assert not sending.done()
            taken.release()
            await sending

        world.run(main())
        assert len(taken.calls) == 1
