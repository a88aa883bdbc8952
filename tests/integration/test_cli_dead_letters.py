"""`kafka-actors dead-letters`: what is listed of a dead-letter topic, and what a replay puts back, as a job left it there."""

import itertools
import json

import pytest

import kafka_actors as ka
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import TopicAuthorizationFailedError
from kafka_actors.testing.fake_kafka import AnswerWithError

pytestmark = pytest.mark.usefixtures("no_notices")


@pytest.fixture
def failed_orders(fake_kafka):
    """A topic `orders` of 3 partitions with 9 records of which those with even numbers failed: theirs are in `dlq`, by a real pipeline's
    dead letters, one of them in an aborted transaction too."""
    from kafka_actors.sinks.dead_letters import dead_letters

    servers = fake_kafka.bootstrap_servers
    with ka.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([ka.NewTopic("orders", 3), ka.NewTopic("dlq", 2)])
    with ka.Producer(bootstrap_servers=servers) as producer:
        for n in range(9):
            headers = [("trace", b"t%d" % n)] if n % 3 else None
            producer.send("orders", b"v%d" % n, key=b"k%d" % n, partition=n % 3, headers=headers).result()
    with (
        ka.Consumer(bootstrap_servers=servers) as consumer,
        ka.Producer(bootstrap_servers=servers) as producer,
        ka.Producer(bootstrap_servers=servers, transactional_id="t") as aborting,
    ):
        consumer.assign([ka.TopicPartition("orders", p) for p in range(3)])
        consumer.seek_to_beginning()
        read = 0
        while read < 9:
            batch = consumer.poll_batch(timeout_ms=100_000)
            read += batch.num_rows
            numbers = [int(value[1:]) for value in batch["value"].to_pylist()]
            failed = [row for row, n in enumerate(numbers) if n % 2 == 0]
            reasons = [f"ValueError: no good: {numbers[row]}" for row in failed]
            made = dead_letters(batch.take(failed), ["process"] * len(failed), reasons, "scorer")
            producer.send_batch(made, "dlq").result()
            aborting.init_transactions() if read == batch.num_rows else None
            aborting.begin_transaction()
            aborting.send_batch(made, "dlq")
            aborting.abort_transaction()
    return servers


def said(capsys, servers, *arguments, code=0):
    assert run_command_line(["dead-letters", *arguments, "-b", servers]) == code
    return capsys.readouterr()


def listed(capsys, servers, *arguments):
    return json.loads(said(capsys, servers, "list", "dlq", "-o", "json", *arguments).out)


def records(servers):
    """Each record of `orders` as (partition, value, headers), in the order of its partition."""
    with ka.Consumer(bootstrap_servers=servers) as consumer:
        partitions = [ka.TopicPartition("orders", p) for p in range(3)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            if (batch := consumer.poll_batch(timeout_ms=1000)) is not None:
                columns = (batch[name].to_pylist() for name in ("partition", "offset", "value", "headers"))
                found += zip(*columns, strict=True)
    return [(p, value, headers) for p, _, value, headers in sorted(found, key=lambda row: row[:2])]


def test_each_letter_says_where_it_came_from_and_why(failed_orders, capsys):
    found = listed(capsys, failed_orders)
    assert sorted((one["partition"], one["offset"], one["reason"][-1]) for one in found) == [
        (0, 0, "0"),
        (0, 2, "6"),
        (1, 1, "4"),
        (2, 0, "2"),
        (2, 2, "8"),
    ]
    assert {(one["topic"], one["group"], one["stage"]) for one in found} == {("orders", "scorer", "process")}
    text = said(capsys, failed_orders, "list", "dlq").out
    assert "orders-0@2  scorer  process  ValueError: no good: 6" in text


def test_filters_narrow_the_list_down(failed_orders, capsys):
    assert {one["offset"] for one in listed(capsys, failed_orders, "--filter", "partition=2")} == {0, 2}
    assert len(listed(capsys, failed_orders, "--filter", "reason=good: [46]$")) == 2
    assert listed(capsys, failed_orders, "--filter", "group=other") == []
    assert len(listed(capsys, failed_orders, "-c", "2")) == 2


def test_a_dry_run_sends_nothing_and_a_replay_puts_records_back_as_they_were(failed_orders, capsys):
    before = records(failed_orders)
    planned = said(capsys, failed_orders, "replay", "dlq", "--filter", "reason=[046]$").out
    assert "WOULD BE SENT" in planned
    assert records(failed_orders) == before
    done = json.loads(
        said(
            capsys, failed_orders, "replay", "dlq", "--filter", "reason=[046]$", "--execute", "-o", "json"
        ).out
    )
    assert done == [
        {"topic": "orders", "partition": 0, "records": 2, "sent": True},
        {"topic": "orders", "partition": 1, "records": 1, "sent": True},
    ]
    new = list(records(failed_orders))
    for one in before:
        new.remove(one)
    assert new == [
        (0, b"v0", None),
        (0, b"v6", None),
        (1, b"v4", [{"key": "trace", "value": b"t4"}]),
    ]


def test_a_replay_that_fails_half_way_says_what_it_has_put_back(failed_orders, fake_kafka, capsys):
    numbers = itertools.count()
    refused = AnswerWithError(TopicAuthorizationFailedError.code)
    fake_kafka.on("Produce", refused, times=None, when=lambda _: next(numbers) > 0)
    before = records(failed_orders)
    answer = said(capsys, failed_orders, "replay", "dlq", "--execute", code=1)
    assert answer.out == ""
    *told, error = answer.err.splitlines()
    assert "TOPIC_AUTHORIZATION_FAILED" in error
    new = list(records(failed_orders))
    for one in before:
        new.remove(one)
    assert 0 < len(new) < 5
    partitions = [partition for partition, _, _ in new]
    assert told == [
        f"put back into orders-{partition} before that: {partitions.count(partition)}"
        for partition in sorted(set(partitions))
    ]


def test_what_waits_in_a_retry_topic_is_listed_and_put_back_too(failed_orders, capsys):
    from kafka_actors.sinks.dead_letters import retry_records

    servers, before = failed_orders, records(failed_orders)
    with ka.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([ka.NewTopic("orders-retry-10s", 3)])
    with (
        ka.Consumer(bootstrap_servers=servers) as consumer,
        ka.Producer(bootstrap_servers=servers) as producer,
    ):
        consumer.assign([ka.TopicPartition("orders", 1)])
        consumer.seek_to_beginning()
        batch = consumer.poll_batch(timeout_ms=100_000).slice(0, 1)
        made = retry_records(batch, ["ValueError: no good"], "scorer", 1, [1], [0])
        producer.send_batch(made, "orders-retry-10s").result()
    (found,) = json.loads(said(capsys, servers, "list", "orders-retry-10s", "-o", "json").out)
    assert (found["topic"], found["partition"], found["offset"]) == ("orders", 1, 0)
    said(capsys, servers, "replay", "orders-retry-10s", "--execute")
    after = records(servers)
    assert len(after) == len(before) + 1
    assert after.count(before[3]) == 2, "as it was, without the headers that it had there"


def test_a_record_without_the_headers_is_named_and_left_out(failed_orders, capsys):
    with ka.Producer(bootstrap_servers=failed_orders) as producer:
        place = producer.send("dlq", b"foreign", partition=1).result()
    answer = said(capsys, failed_orders, "replay", "dlq", "--execute", code=1)
    assert f"dlq-1@{place.offset}: its headers don't say where it came from" in answer.err
    assert len(records(failed_orders)) == 9 + 5


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["list", "nowhere"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3) for nowhere"),
        (["list", "dlq", "--filter", "colour=red"], 2, "give NAME=VALUE, with NAME one of topic"),
        (["list", "dlq", "--filter", "reason=("], 2, "is no regular expression"),
    ],
)
def test_what_is_wrong_is_one_line(failed_orders, capsys, arguments, code, words):
    answer = said(capsys, failed_orders, *arguments, code=code)
    assert words in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_a_record_that_was_in_kafka_goes_on_however_large_it_is(fake_kafka, capsys):
    """A job's dead letters and retry topics have no options of a producer, so that nobody could raise its limit."""
    from fakes.records import records as made

    from kafka_actors.config import ProducerConfig, build
    from kafka_actors.errors import UndeliveredError
    from kafka_actors.sinks.dead_letters import DeadLetters, RetryWriter

    servers, large = fake_kafka.bootstrap_servers, b"x" * 1_500_000
    config = build(ProducerConfig, bootstrap_servers=servers)
    for topic in ("orders", "dlq", "retry"):
        fake_kafka.create_topic(topic, 4, config={"max.message.bytes": "2000000"})
    fake_kafka.create_topic("narrow", 1)
    batch = made([large, b"small"])
    for writer, write in (
        (DeadLetters(config, "dlq", "g"), lambda to: to.write(batch, ["process"] * 2, ["bad"] * 2)),
        (RetryWriter(config, "g"), lambda to: to.write(batch, "retry", ["bad"] * 2, 1, [1, 1], [5, 5])),
    ):
        write(writer)
        writer.flush()
        writer.close()
    assert [sum(fake_kafka.end_offsets(topic).values()) for topic in ("dlq", "retry")] == [2, 2]
    said(capsys, servers, "replay", "dlq", "--execute")
    assert fake_kafka.end_offsets("orders")[ka.TopicPartition("orders", 3)] == 2
    narrow = DeadLetters(config, "narrow", "g")
    narrow.write(batch, ["process"] * 2, ["bad"] * 2)
    with pytest.raises(UndeliveredError, match=r"for narrow-0 .*max\.message\.bytes: raise that"):
        narrow.flush()
    narrow.close()
