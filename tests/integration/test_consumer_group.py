"""`Consumer` as a member of a group, with other members, ours and foreign."""

import asyncio
import threading
import time

import confluent_kafka
import pytest
from fakes.reading import Log, consumers, poll_until, values
from pace import this_run
from waiting import at_pace_s, slow_s

import kafka_actors as ka
from kafka_actors.consumer import ConsumerRebalanceListener
from kafka_actors.errors import UsageError
from kafka_actors.types import TopicPartition


@pytest.fixture
def consumer_of(cluster, group_id):
    yield from consumers(cluster.bootstrap_servers, group_id=group_id, heartbeat_interval_ms=300)


@pytest.mark.kafka
def test_two_members_share_and_one_takes_over(consumer_of, kafka_topic, produce):
    topic = kafka_topic(partitions=4)
    produce(topic, values(1000))
    log = Log()
    first = consumer_of([topic], listener=log)
    seen = []
    poll_until([first], lambda: len(seen) == 1000, seen=seen)
    second = consumer_of([topic])
    poll_until(
        [first, second], lambda: len(second.assignment()) == 2 and len(first.assignment()) == 2, seen=seen
    )
    produce(topic, values(1000, 1000))
    poll_until([first, second], lambda: len(seen) >= 2000, seen=seen)
    assert second.poll_batch(timeout_ms=0) is None, "nothing is in hand now, so close commits everything"
    second.close()
    poll_until([first], lambda: len(first.assignment()) == 4, seen=seen)
    produce(topic, values(100, 2000))
    poll_until([first], lambda: len(seen) >= 2100, seen=seen)
    assert sorted(set(seen)) == values(2100)
    assert len(seen) == 2100, "a clean handover repeats nothing"
    assert log.threads == {threading.get_ident()}
    assert log.calls[0] == ("assigned", [0, 1, 2, 3])
    assert [what for what, partitions in log.calls if partitions and what == "lost"] == []


def test_a_foreign_member_joins_and_leaves(consumer_of, cluster, kafka_topic, produce, group_id):
    topic = kafka_topic(partitions=4)
    ours = consumer_of([topic])
    poll_until([ours], lambda: len(ours.assignment()) == 4)
    foreign = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300,
        }
    )
    foreign.subscribe([topic])
    theirs = []

    def both():
        theirs.extend(m.value() for m in foreign.consume(1000, timeout=0.05) if m.error() is None)
        return len(ours.assignment()) == 2 and len(foreign.assignment()) == 2

    mine = []
    poll_until([ours], both, seen=mine)
    produce(topic, values(1000))
    poll_until([ours], lambda: both() is not None and len(mine) + len(theirs) >= 1000, seen=mine)
    assert sorted(mine + theirs) == values(1000)
    assert mine
    assert theirs
    foreign.close()
    poll_until([ours], lambda: len(ours.assignment()) == 4, seen=mine)


def test_the_batch_in_hand_is_finished_and_committed_before_its_partition_goes(
    consumer_of, cluster, kafka_topic, produce, group_id
):
    topic = kafka_topic(partitions=2)
    produce(topic, values(100), partition=0)
    produce(topic, values(100), partition=1)
    log = Log()
    first = consumer_of([topic], listener=log, auto_commit_interval_ms=100_000)
    count = 0
    while count < 200:
        batch = first.poll_batch(timeout_ms=100_000)
        count += batch.num_rows
    second = consumer_of([topic])
    second.poll_batch(timeout_ms=0)
    time.sleep(3)
    assert log.calls == [("assigned", [0, 1])], "while the user works, nothing is taken away"
    assert second.assignment() == set()
    poll_until([first, second], lambda: len(second.assignment()) == 1)
    (moved,) = second.assignment()
    assert second.position(moved) == 100, (
        "what was done before the poll was committed when the partition went"
    )
    assert ("revoked", [moved.partition]) in log.calls


def test_without_polls_the_consumer_leaves_and_joins_again_at_the_next(consumer_of, kafka_topic, produce):
    topic = kafka_topic(partitions=2)
    log = Log()
    slow = consumer_of([topic], listener=log, max_poll_interval_ms=round(1000 * at_pace_s(1.5)))
    poll_until([slow], lambda: len(slow.assignment()) == 2)
    other = consumer_of([topic])
    poll_until([slow, other], lambda: len(other.assignment()) == 1)
    poll_until([other], lambda: len(other.assignment()) == 2)
    produce(topic, values(10))
    poll_until([slow, other], lambda: len(slow.assignment()) == 1)
    assert "lost" in [what for what, _ in log.calls]


def test_a_long_wait_for_records_is_no_missing_poll(consumer_of, kafka_topic):
    topic, log, interval_ms = kafka_topic(), Log(), round(1000 * max(5.0, at_pace_s(1)))
    consumer = consumer_of([topic], listener=log, max_poll_interval_ms=interval_ms)
    poll_until([consumer], lambda: log.calls)
    assert consumer.poll_batch(timeout_ms=1.5 * interval_ms) is None
    assert consumer.poll_batch(timeout_ms=0) is None
    assert log.calls == [("assigned", [0])]


def test_a_pattern_finds_topics_that_come_later(consumer_of, kafka_topic, produce):
    one = kafka_topic(prefix="pat-aa")
    consumer = consumer_of(pattern="pat-aa-.*|pat-bb-.*", metadata_max_age_ms=500)
    poll_until([consumer], lambda: consumer.assignment() == {TopicPartition(one, 0)})
    two = kafka_topic(prefix="pat-bb")
    produce(two, values(10))
    seen = []
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)
    assert consumer.assignment() == {TopicPartition(one, 0), TopicPartition(two, 0)}


def test_a_changed_subscription_takes_effect(consumer_of, kafka_topic, produce):
    one, two = kafka_topic(prefix="one"), kafka_topic(prefix="two")
    produce(one, values(10))
    produce(two, values(10, 100))
    consumer = consumer_of([one])
    seen = []
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)
    consumer.subscribe([two])
    poll_until([consumer], lambda: len(seen) == 20, seen=seen)
    assert consumer.assignment() == {TopicPartition(two, 0)}
    assert consumer.subscription() == {two}
    with pytest.raises(UsageError, match="mutually exclusive"):
        consumer.assign([TopicPartition(one, 0)])
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.assign([TopicPartition(one, 0)])
    assert consumer.position(TopicPartition(one, 0)) == 10, (
        "the committed offset, even for partitions chosen by hand"
    )


def test_a_listener_may_seek_before_the_first_record(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(100))
    made = {}

    class Seek(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions):
            for tp in partitions:
                made["consumer"].seek(tp, 90)

    made["consumer"] = consumer = consumer_of([topic], listener=Seek())
    seen = []
    poll_until([consumer], lambda: len(seen) >= 10, seen=seen)
    assert seen == values(10, 90)


def test_an_error_of_the_listener_reaches_the_user(consumer_of, kafka_topic):
    topic = kafka_topic()

    class Broken(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions):
            raise ValueError("the listener's own")

    consumer = consumer_of([topic], listener=Broken())
    with pytest.raises(ValueError, match="the listener's own"):
        poll_until([consumer], lambda: False, seconds=20)
    assert consumer.poll_batch(timeout_ms=100) is None


def test_close_ends_while_a_rebalance_is_under_way(consumer_of, kafka_topic):
    topic = kafka_topic(partitions=2)
    first, second = consumer_of([topic]), consumer_of([topic])
    poll_until([first], lambda: len(first.assignment()) == 2)
    second.poll_batch(timeout_ms=0)
    time.sleep(0.5)
    begun = time.monotonic()
    first.close(timeout_ms=5000)
    second.close(timeout_ms=5000)
    assert this_run().quiet_s(begun, time.monotonic()) < 15


def test_the_async_twin_reads_commits_and_closes(cluster, kafka_topic, produce, group_id):
    topic = kafka_topic(partitions=2)
    produce(topic, values(1000))
    tps = [TopicPartition(topic, p) for p in range(2)]

    async def run():
        calls = []

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_assigned(self, partitions):
                await asyncio.sleep(0)
                calls.append(sorted(partitions))

        async with ka.AsyncConsumer(
            [topic],
            listener=Listener(),
            group_id=group_id,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
        ) as consumer:
            seen = []
            while len(seen) < 600:
                batch = await consumer.poll_batch(timeout_ms=100_000)
                if batch is not None:
                    seen += batch["value"].to_pylist()
            if len(seen) < 1000:
                async for message in consumer:
                    seen.append(message.value)
                    if len(seen) == 1000:
                        break
            assert sorted(seen) == values(1000)
            await consumer.commit()
            committed = await consumer.committed(tps)
            ends = await consumer.end_offsets(tps)
            assert {tp: c.offset for tp, c in committed.items()} == ends
            assert [consumer.lag(tp) for tp in tps] == [0, 0]
            await consumer.seek(tps[0], 5)
            assert await consumer.position(tps[0]) == 5
            assert await consumer.poll_batch(timeout_ms=100_000) is not None
            assert await consumer.partitions_for_topic(topic) == {0, 1}
            assert topic in await consumer.topics()
            assert calls == [tps]
        with pytest.raises(UsageError, match="closed"):
            await consumer.poll_batch()

    asyncio.run(run())


def test_a_cancelled_poll_of_the_async_twin_loses_nothing(cluster, kafka_topic, produce, group_id):
    topic = kafka_topic()
    produce(topic, values(100))

    async def run():
        async with ka.AsyncConsumer(
            [topic],
            group_id=group_id,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
        ) as consumer:
            reader = consumer._session.reader
            taking, cancelled, take = threading.Event(), threading.Event(), reader.next_batch

            def slow():
                batch = take()
                if batch is not None and not taking.is_set():
                    taking.set()
                    cancelled.wait(slow_s(20))  # a big batch is being decoded
                return batch

            reader.next_batch = slow
            poll = asyncio.create_task(consumer.poll_batch(timeout_ms=100_000))
            assert await asyncio.to_thread(taking.wait, slow_s(20))
            poll.cancel()
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await poll
            seen = []
            while len(seen) < 100:
                batch = await consumer.poll_batch(timeout_ms=100_000)
                assert batch is not None, len(seen)
                seen += batch["value"].to_pylist()
            assert seen == values(100)

    asyncio.run(run())


def test_unsubscribe_leaves_at_once_and_commits(consumer_of, cluster, kafka_topic, produce, group_id):
    topic = kafka_topic(partitions=2)
    produce(topic, values(100))
    log, seen = Log(), []
    consumer = consumer_of([topic], listener=log, session_timeout_ms=30_000)
    poll_until([consumer], lambda: len(seen) == 100, seen=seen)
    consumer.poll_batch(timeout_ms=0)
    begun = time.monotonic()
    consumer.unsubscribe()
    assert this_run().quiet_s(begun, time.monotonic()) < 4  # nobody waits for the thread that is in this call
    assert log.calls == [("assigned", [0, 1]), ("revoked", [0, 1])]
    assert sum(cluster.committed(group_id).values()) == 100
    consumer.subscribe([topic])
    poll_until([consumer], lambda: log.calls[2:])
    assert consumer.assignment() == {TopicPartition(topic, p) for p in range(2)}
    assert log.calls[2:] == [("assigned", [0, 1])]


def test_a_loop_over_messages_that_unsubscribes_says_that_nothing_is_to_be_read(
    consumer_of, cluster, kafka_topic, produce, group_id
):
    topic = kafka_topic(partitions=1)
    produce(topic, values(10))
    consumer = consumer_of([topic])
    messages = iter(consumer)
    assert next(messages).offset == 0
    consumer.unsubscribe()
    with pytest.raises(UsageError, match="nothing is to be read"):
        next(messages)
    consumer.subscribe([topic])
    assert next(iter(consumer)).offset == 0, "the message in hand was not done"

    async def twin() -> None:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with ka.AsyncConsumer(topic, group_id=f"{group_id}-twin", **options) as asynchronous:
            async for _ in asynchronous:
                await asynchronous.unsubscribe()

    with pytest.raises(UsageError, match="nothing is to be read"):
        asyncio.run(twin())


def test_a_poll_whose_listener_unsubscribes_says_that_nothing_is_to_be_read(consumer_of, kafka_topic):
    class Leaving(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions):
            consumer.unsubscribe()

    consumer = consumer_of([kafka_topic(partitions=1)], listener=Leaving())
    with pytest.raises(UsageError, match="nothing is to be read"):
        consumer.poll_batch(timeout_ms=None)


def test_the_async_twin_belongs_to_one_event_loop(cluster, kafka_topic, group_id):
    """Its records would wake another one than the one that waits."""
    consumer = ka.AsyncConsumer(kafka_topic(), group_id=group_id, bootstrap_servers=cluster.bootstrap_servers)
    asyncio.run(consumer.poll_batch(timeout_ms=0))
    with pytest.raises(UsageError, match="this AsyncConsumer belongs to the event loop"):
        asyncio.run(consumer.poll_batch(timeout_ms=0))
    asyncio.run(consumer.close())
