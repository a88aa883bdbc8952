"""The demo's cluster: orders are shared out, what is missing is named, and a real cluster is left as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafka_actors.cli.demo import cluster as module
from kafka_actors.cli.demo.cluster import PARTITIONS, DemoCluster, DemoFailed, Filled, check_kept, fill, real
from kafka_actors.cli.demo.orders import REGIONS, make_orders
from kafka_actors.errors import ConfigError, NoBrokersAvailable

EU = DemoCluster("a:1", {"eu": "orders-eu"}, "orders-.*", "g", embedded=False)
ALL = DemoCluster("a:1", {region: f"orders-{region}" for region in REGIONS}, "orders-.*", "g", embedded=True)


class Consumer:
    """A consumer of confluent-kafka's kind. `logs`: first and end offset; `offsets`: what the group has committed."""

    def __init__(
        self, logs: dict[tuple[str, int], tuple[int, int]], offsets: dict[tuple[str, int], int]
    ) -> None:
        self.logs, self.offsets = logs, offsets

    def get_watermark_offsets(self, tp: TopicPartition, timeout: float) -> tuple[int, int]:
        return self.logs.get((tp.topic, tp.partition), (0, 0))

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        invalid = -1001
        return [
            TopicPartition(p.topic, p.partition, self.offsets.get((p.topic, p.partition), invalid))
            for p in partitions
        ]


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer({}, {})

    @contextmanager
    def consumer_of(place: DemoCluster) -> Iterator[Consumer]:
        yield made

    monkeypatch.setattr(module, "_consumer", consumer_of)
    return made


# ------------------------------------------------------------ what the cluster has


def test_a_partition_without_a_committed_offset_has_none_and_one_at_the_start_has_zero(
    consumer: Consumer,
) -> None:
    consumer.offsets = {("orders-eu", 0): 0, ("orders-eu", 2): 7}
    assert EU.committed() == {
        ("orders-eu", 0): 0,
        ("orders-eu", 1): None,
        ("orders-eu", 2): 7,
        ("orders-eu", 3): None,
    }


def test_every_partition_of_every_topic_has_its_bounds(consumer: Consumer) -> None:
    consumer.logs = {("orders-us", 1): (3, 9)}
    found = ALL.watermarks()
    assert len(found) == len(REGIONS) * PARTITIONS
    assert found[("orders-us", 1)] == (3, 9)


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ((5, 20), "orders-eu-1 keeps offsets 5 to 20 of 20 orders produced"),
        ((0, 19), "orders-eu-1 keeps offsets 0 to 19 of 20 orders produced"),
        ((0, 21), "orders-eu-1 keeps offsets 0 to 21 of 20 orders produced"),
    ],
    ids=["deleted", "lost", "those of others"],
)
def test_orders_that_a_cluster_did_not_keep_are_named_by_their_partition(
    consumer: Consumer, bounds: tuple[int, int], says: str
) -> None:
    filled = Filled({("orders-eu", 0): 10, ("orders-eu", 1): 20}, {})
    consumer.logs = {("orders-eu", 0): (0, 10), ("orders-eu", 1): (0, 20)}
    check_kept(EU, filled)
    consumer.logs[("orders-eu", 1)] = bounds
    with pytest.raises(DemoFailed, match=says):
        check_kept(EU, filled)


# ------------------------------------------------------------ filling it


def test_all_orders_are_shared_out_over_the_regions_and_their_revenue_is_summed(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced: dict[str, list[bytes]] = {}

    class Produce:
        def __init__(self, servers: str) -> None:
            assert servers == "a:1"

        def __call__(self, topic: str, values: list[bytes], **options: Any) -> dict[int, int]:
            assert len(options["keys"]) == len(values)
            produced[topic] = values
            consumer.logs[(topic, 0)] = (0, len(values))
            return {0: len(values)}

    monkeypatch.setattr("kafka_actors.testing.produce.Produce", Produce)
    lines: list[str] = []
    filled = fill(ALL, 11, lines.append)
    assert sorted(map(len, produced.values())) == [3, 4, 4]
    assert filled.orders == 11
    expected = sum(
        order.cents for region in REGIONS for order in make_orders(region, len(produced[f"orders-{region}"]))
    )
    assert sum(filled.revenue.values()) == expected
    assert len(lines) == len(REGIONS)


def test_the_brokers_are_named_as_what_they_are() -> None:
    assert (ALL.brokers, EU.brokers) == ("three embedded brokers", "a:1")


# ------------------------------------------------------------ a real cluster


def ended(error: KafkaException | None = None) -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(error) if error else future.set_result(None)
    return future


class AdminClient:
    """An admin of confluent-kafka's kind, of a cluster with so many brokers; it refuses topics of `refused`."""

    brokers = 5
    refused = ""

    def __init__(self) -> None:
        self.created: list[Any] = []
        self.deleted: list[str] = []

    def list_topics(self, timeout: float) -> Any:
        if not self.brokers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "nobody there"))
        return SimpleNamespace(brokers=dict.fromkeys(range(self.brokers)))

    def create_topics(self, topics: list[Any], request_timeout: float) -> dict[str, Future[None]]:
        self.created = topics
        error = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not for you"))
        return {t.topic: ended(error if self.refused and self.refused in t.topic else None) for t in topics}

    def delete_topics(self, topics: list[str], request_timeout: float) -> dict[str, Future[None]]:
        self.deleted += topics
        error = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "gone"))
        return {topic: ended(error) for topic in topics}

    def delete_consumer_groups(self, groups: list[str], request_timeout: float) -> dict[str, Future[None]]:
        self.deleted += groups
        return {group: ended() for group in groups}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> AdminClient:
    made = AdminClient()
    monkeypatch.setattr(module, "_admin", lambda bootstrap: made)
    return made


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (5, 3)])
def test_topics_have_as_many_replicas_as_there_are_brokers_but_no_more_than_three(
    admin: AdminClient, brokers: int, replicas: int
) -> None:
    admin.brokers = brokers
    with real("a:1") as place:
        assert {t.topic for t in admin.created} == set(place.topics.values())
        assert {(t.num_partitions, t.replication_factor) for t in admin.created} == {(PARTITIONS, replicas)}


def test_a_run_has_names_of_its_own_and_its_pattern_finds_no_other_runs_topics(admin: AdminClient) -> None:
    import re

    with real("a:1") as one, real("a:1") as other:
        assert not {*one.topics.values(), one.group_id} & {*other.topics.values(), other.group_id}
        assert all(re.fullmatch(one.pattern, topic) for topic in one.topics.values())
        assert not any(re.fullmatch(one.pattern, topic) for topic in other.topics.values())


@pytest.mark.parametrize("fails", [False, True])
def test_topics_and_group_are_deleted_however_the_run_ends_and_errors_of_that_are_ignored(
    admin: AdminClient, fails: bool
) -> None:
    try:
        with real("a:1") as place:
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    assert set(admin.deleted) == {*place.topics.values(), place.group_id}


def test_a_topic_that_is_refused_ends_the_run_and_leaves_no_other_behind(admin: AdminClient) -> None:
    admin.refused = "orders-us"
    with (
        pytest.raises(DemoFailed, match=r"topic orders-us-\w+ could not be created: not for you"),
        real("a:1"),
    ):
        pass
    assert {t.topic for t in admin.created} <= set(admin.deleted)


def test_where_no_broker_answers_nothing_is_created_or_deleted(admin: AdminClient) -> None:
    admin.brokers = 0
    with pytest.raises(NoBrokersAvailable, match="no broker answers at a:1: nobody there"), real("a:1"):
        pass
    assert (admin.created, admin.deleted) == ([], [])
    with pytest.raises(ConfigError), real("kafka:nine"):
        pass


def test_the_consumer_of_a_look_is_closed_also_where_the_cluster_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[dict[str, Any]] = []

    class Silent:
        def __init__(self, settings: dict[str, Any]) -> None:
            self.settings = settings

        def committed(self, *_: Any, **__: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "late"))

        def close(self) -> None:
            closed.append(self.settings)

    monkeypatch.setattr(confluent_kafka, "Consumer", Silent)
    with pytest.raises(KafkaException):
        EU.committed()
    [settings] = closed
    assert (settings["bootstrap.servers"], settings["group.id"]) == ("a:1", "g")
