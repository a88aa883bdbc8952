"""Partitions that a `Consumer` gives up: to another member, to nobody, or unwillingly."""

import math
import threading
import time

import pytest
from fakes.reading import Log, consumers, members_of, poll_until, values
from waiting import until

from kafka_actors.errors import IllegalGenerationError, KafkaTimeoutError, UsageError
from kafka_actors.types import TopicPartition


@pytest.fixture
def consumer_of(cluster, group_id):
    yield from consumers(cluster.bootstrap_servers, group_id=group_id, heartbeat_interval_ms=300)


def test_messages_that_were_not_handed_out_of_a_partition_that_goes_are_not_committed(
    consumer_of, kafka_topic, produce
):
    """An auto-commit is due in the very moment in which the partition is given up, in the middle of a chunk."""
    topic = kafka_topic(partitions=2)
    for partition in range(2):
        produce(topic, values(1000), partition=partition)
    stays, goes = TopicPartition(topic, 0), TopicPartition(topic, 1)

    class Resume(Log):
        def on_partitions_revoked(self, partitions):
            first.resume(stays)

    first = consumer_of([topic], listener=Resume(), auto_commit_interval_ms=100)
    poll_until([first], first.assignment)
    first.seek_to_beginning()
    first.pause(stays)
    second = consumer_of([topic], enable_auto_commit=False)

    def join():
        poll_until([second], second.assignment)

    joining = threading.Thread(target=join)
    last = {}
    for message in first:
        last[message.partition] = message.offset
        if message.partition == stays.partition:
            break
        if not joining.ident:
            joining.start()
        time.sleep(1.2)  # longer than between two looks at what is due
    joining.join()
    assert second.assignment() == {goes}
    first.commit()  # behind what was due before
    assert second.committed([goes])[goes].offset == last[goes.partition] + 1


@pytest.mark.parametrize("call", ["subscribe", "assign"])
def test_to_want_nothing_is_to_leave(consumer_of, cluster, kafka_topic, produce, group_id, call):
    """Else the group would wait for a member that reads nothing."""
    topic = kafka_topic(partitions=2)
    produce(topic, values(10))
    log, seen = Log(), []
    consumer = consumer_of([topic], listener=log, auto_commit_interval_ms=100_000)
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)
    assert consumer.poll_batch(timeout_ms=0) is None
    getattr(consumer, call)([])
    assert consumer.assignment() == consumer.subscription() == set()
    assert members_of(cluster.bootstrap_servers, group_id) == 0
    assert log.calls == [("assigned", [0, 1]), ("revoked", [0, 1])]
    with pytest.raises(UsageError, match="nothing is to be read"):
        consumer.poll_batch(timeout_ms=0)
    found = consumer.committed([TopicPartition(topic, p) for p in range(2)])
    assert sum(offset.offset for offset in found.values()) == 10, "as when it is closed"


def test_partitions_that_another_assignment_leaves_out_are_committed(consumer_of, kafka_topic, produce):
    """Records of partitions that are left out count as processed, as when the consumer is closed."""
    first, second, stays = kafka_topic(), kafka_topic(), kafka_topic()
    for topic in (first, second, stays):
        produce(topic, values(10))
    goes, comes, kept = (TopicPartition(topic, 0) for topic in (first, second, stays))
    seen = []
    consumer = consumer_of(auto_commit_interval_ms=100_000)
    consumer.assign([goes, kept])
    poll_until([consumer], lambda: len(seen) == 20, seen=seen)
    assert consumer.poll_batch(timeout_ms=0) is None
    consumer.assign([comes, kept])
    found = consumer.committed([goes, kept])
    assert found[goes].offset == 10
    assert found[kept] is None, "it goes on"
    poll_until([consumer], lambda: len(seen) == 30, seen=seen)


def test_unsubscribe_ends_also_where_the_last_commit_fails(
    consumer_of, cluster, kafka_topic, produce, group_id, caplog
):
    """Else partitions would be read on that others have by now."""
    topic, other = kafka_topic(), kafka_topic()
    produce(topic, values(10))
    produce(other, values(10))
    seen = []
    consumer = consumer_of([topic], auto_commit_interval_ms=100_000)
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)
    assert consumer.poll_batch(timeout_ms=0) is None

    async def refused(*_, **__):
        raise KafkaTimeoutError("no answer in time")

    consumer._session.core._coordinator.commit_offsets_sync = refused
    consumer.unsubscribe()
    assert "the last commit of the group may be missing: no answer in time" in caplog.text
    assert consumer.assignment() == consumer.subscription() == set()
    assert members_of(cluster.bootstrap_servers, group_id) == 0
    consumer.subscribe([other])
    poll_until([consumer], lambda: len(seen) == 20, seen=seen)


def polls_too_late(consumer):
    """Has `max_poll_interval_ms` be over, and waits until the consumer has lost its partitions for that. The calls behind it have all of
    their time."""
    core = consumer._session.core

    async def over():
        core._coordinator._member._core.progress_at = -math.inf
        core._coordinator._driver.wake()

    consumer._session.io.run(over())
    until(lambda: core.rebalances.pending)


def test_who_is_closed_before_it_heard_of_its_partitions_hears_nothing_of_their_end(consumer_of, kafka_topic):
    log = Log()
    consumer = consumer_of([kafka_topic(partitions=2)], listener=log)
    consumer._session.begin()  # as a poll does, which might hear of them already
    rebalances = consumer._session.core.rebalances
    until(lambda: rebalances.pending)  # nobody polls meanwhile
    consumer.close()
    assert log.calls == []


def test_what_was_lost_before_the_consumer_is_closed_is_told(consumer_of, kafka_topic):
    log = Log()
    consumer = consumer_of([kafka_topic(partitions=2)], listener=log, max_poll_interval_ms=1000)
    poll_until([consumer], lambda: log.calls)
    rebalances = consumer._session.core.rebalances
    until(lambda: rebalances.pending)
    consumer.close()
    assert log.calls == [("assigned", [0, 1]), ("lost", [0, 1])]


def test_a_commit_says_that_what_it_should_cover_was_lost(consumer_of, kafka_topic, produce):
    topic = kafka_topic()
    produce(topic, values(10))
    seen = []
    consumer = consumer_of([topic], enable_auto_commit=False)
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)
    polls_too_late(consumer)
    with pytest.raises(IllegalGenerationError, match=rf"{topic}-0: it was lost since the last poll"):
        consumer.commit()
    poll_until([consumer], lambda: len(seen) == 20, seen=seen)
    assert seen == 2 * values(10)
    consumer.commit()
    tp = TopicPartition(topic, 0)
    assert consumer.committed([tp])[tp].offset == 10


@pytest.mark.kafka
def test_a_static_member_that_is_closed_comes_back_without_a_rebalance(
    consumer_of, cluster, kafka_topic, group_id
):
    topic = kafka_topic(partitions=2)
    one = consumer_of([topic], group_instance_id="one")
    two = consumer_of([topic], group_instance_id="two")
    poll_until([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 1)
    had, generations = two.assignment(), cluster.generations(group_id)
    two.close()
    again = consumer_of([topic], group_instance_id="two")
    poll_until([one, again], again.assignment)
    assert again.assignment() == had
    assert cluster.generations(group_id) == generations


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_topic_that_does_not_exist_is_warned_of_once_and_read_when_it_does(
    consumer_of, cluster, kafka_topic, produce, caplog, by_hand
):
    topic, later = kafka_topic(), f"{kafka_topic()}-later"
    consumer = consumer_of([] if by_hand else [topic, later], metadata_max_age_ms=300)
    if by_hand:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(later, 0)])
    began = time.monotonic()

    def warned():
        assert consumer.poll_batch(timeout_ms=100) is None
        return f"there is no topic '{later}'" in caplog.text and time.monotonic() - began > 2

    until(warned, pause=0.0)
    assert caplog.text.count(f"there is no topic '{later}'") == 1
    assert f"no topic '{topic}'" not in caplog.text
    cluster.create_topic(later)
    produce(later, values(10))
    seen = []
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)


def test_an_events_function_that_raises_ends_nothing(consumer_of, kafka_topic, produce, caplog):
    topic = kafka_topic(partitions=2)
    produce(topic, values(10))

    def raising(event):
        raise ValueError("the user's own")

    seen = []
    consumer = consumer_of([topic], events=raising)
    poll_until([consumer], lambda: len(seen) == 10, seen=seen)
    assert "events raised for PartitionsAssigned" in caplog.text


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_deleted_topic_is_given_up_although_it_can_be_committed_no_more(
    consumer_of, cluster, kafka_topic, produce, strategy
):
    """A commit of its offsets would be tried again and again, and the group, or the consumer's end, would wait for it."""
    topics = [kafka_topic(prefix=f"gone-{strategy}") for _ in range(2)]
    for topic in topics:
        produce(topic, values(5))
    consumer = consumer_of(
        pattern=f"gone-{strategy}.*",
        partition_assignment_strategy=strategy,
        metadata_max_age_ms=500,
        auto_commit_interval_ms=600_000,
    )
    seen = set()
    while len(seen) < 2:
        batch = consumer.poll_batch(timeout_ms=100_000)
        seen.add(batch["topic"][0].as_py())
    cluster.delete_topic(topics[0])
    poll_until([consumer], lambda: consumer.assignment() == {TopicPartition(topics[1], 0)})
    cluster.delete_topic(topics[1])
    poll_until([consumer], lambda: not consumer.assignment())


def test_a_listener_may_close_the_consumer(consumer_of, kafka_topic):
    class Closing(Log):
        def on_partitions_assigned(self, partitions):
            super().on_partitions_assigned(partitions)
            consumer.close()

    consumer = consumer_of([kafka_topic()], listener=(log := Closing()))
    with pytest.raises(UsageError, match="this consumer is closed"):
        consumer.poll_batch(timeout_ms=100_000)
    assert log.calls[0] == ("assigned", [0])
