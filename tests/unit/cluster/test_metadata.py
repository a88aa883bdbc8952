"""ClusterMetadata: the methods of the reference page, with the return values it gives."""

from __future__ import annotations

import uuid

import pytest

from kafka_actors.cluster import BrokerMetadata, ClusterMetadata, PartitionMetadata
from kafka_actors.errors import ConfigError, LeaderNotAvailableError, NoBrokersError, RebootstrapRequiredError
from kafka_actors.protocol import FindCoordinatorResponse, MetadataResponse, TopicPartition
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**configs: object) -> tuple[ClusterMetadata, Clock]:
    clock = Clock()
    return ClusterMetadata(clock=clock, rand=lambda: 0.5, **configs), clock


def response(*, leader: int = 1, epoch: int = 1, error: int = 0) -> MetadataResponse:
    parts = [
        MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch),
        MetadataResponsePartition(partition_index=1, leader_id=-1, error_code=5, leader_epoch=epoch),
    ]
    return MetadataResponse(
        error_code=error,
        brokers=[MetadataResponseBroker(1, "a", 1, "r1"), MetadataResponseBroker(2, "b", 2)],
        topics=[
            MetadataResponseTopic(name="t", partitions=parts),
            MetadataResponseTopic(name="__offsets", is_internal=True, partitions=parts[:1]),
            MetadataResponseTopic(name="secret", error_code=29),
        ],
    )


def test_defaults_are_those_of_the_page() -> None:
    metadata, _ = make()
    assert metadata.config["retry_backoff_ms"] == 100
    assert metadata.config["metadata_max_age_ms"] == 300_000
    assert metadata.brokers() == {BrokerMetadata(-1, "localhost", 9092)}


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="retry_backof_ms"):
        make(retry_backof_ms=1)


def test_bootstrap_servers_stand_in_until_brokers_are_known() -> None:
    metadata, _ = make(bootstrap_servers="x:1,[::1]:2")
    assert metadata.brokers() == {BrokerMetadata(-1, "x", 1), BrokerMetadata(-2, "::1", 2)}
    assert metadata.broker_metadata(-2) == BrokerMetadata(-2, "::1", 2)
    metadata.update_metadata(response())
    assert metadata.brokers() == {BrokerMetadata(1, "a", 1, "r1"), BrokerMetadata(2, "b", 2)}


def test_reading_what_is_known() -> None:
    metadata, _ = make()
    metadata.update_metadata(response())
    assert metadata.topics() == {"t"}
    assert metadata.topics(exclude_internal_topics=False) == {"t", "__offsets"}
    assert metadata.partitions_for_topic("t") == {0, 1}
    assert metadata.available_partitions_for_topic("t") == {0}
    assert metadata.partitions_for_topic("nope") is None
    assert metadata.available_partitions_for_topic("nope") is None
    assert metadata.leader_for_partition(TopicPartition("t", 0)) == 1
    assert metadata.leader_for_partition(TopicPartition("t", 1)) == -1
    assert metadata.leader_for_partition(TopicPartition("t", 9)) is None
    assert metadata.partitions_for_broker(1) == {TopicPartition("t", 0), TopicPartition("__offsets", 0)}
    assert metadata.partitions_for_broker(2) is None
    assert metadata.broker_metadata(3) is None


def test_partitions_for_broker_follows_the_leader() -> None:
    metadata, _ = make()
    metadata.update_metadata(response())
    metadata.partitions_for_broker(1)
    metadata.update_metadata(response(leader=2, epoch=2))
    assert metadata.partitions_for_broker(1) is None
    assert TopicPartition("t", 0) in (metadata.partitions_for_broker(2) or ())


def test_request_update_resolves_to_the_cluster() -> None:
    metadata, clock = make()
    metadata.update_metadata(complete())
    clock.now += 10
    assert metadata.ttl() > 200_000
    future = metadata.request_update()
    assert metadata.ttl() == 0
    assert not future.is_done
    metadata.update_metadata(complete())
    assert future.result() is metadata
    assert metadata.ttl() == 300_000


def complete() -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(1, "a", 1)])


def test_an_update_requested_while_one_is_under_way_waits_for_the_next() -> None:
    metadata, _ = make()
    first = metadata.request_update()
    metadata.update_started()
    second = metadata.request_update()
    metadata.update_metadata(complete())
    assert first.is_done
    assert not second.is_done
    metadata.update_started()
    metadata.update_metadata(complete())
    assert second.result() is metadata


def test_failed_update_fails_the_request_and_backs_off() -> None:
    metadata, clock = make()
    future = metadata.request_update()
    metadata.failed_update(NoBrokersError("none"))
    assert isinstance(future.exception(), NoBrokersError)
    assert metadata.ttl() == metadata.refresh_backoff() == 100
    metadata.failed_update(NoBrokersError("none"))
    assert metadata.refresh_backoff() == 200
    clock.now += 1
    assert metadata.ttl() == 0


@pytest.mark.parametrize(
    ("bad", "error"), [(response(error=129), RebootstrapRequiredError), (MetadataResponse(), NoBrokersError)]
)
def test_an_answer_that_says_nothing_is_a_failed_update(
    bad: MetadataResponse, error: type[Exception]
) -> None:
    metadata, _ = make()
    metadata.update_metadata(response())
    known = metadata.snapshot()
    future = metadata.request_update()
    metadata.update_metadata(bad)
    assert isinstance(future.exception(), error)
    assert metadata.snapshot() is known


def test_a_partial_answer_meets_no_request() -> None:
    metadata, _ = make()
    future = metadata.request_update()
    metadata.update_metadata(response(), partial=True)
    assert not future.is_done
    assert metadata.topics() == {"t"}


def test_a_topic_that_was_learned_while_an_update_was_under_way_outlives_its_answer() -> None:
    """The update was sent before the topic was asked for, to a broker that answers later."""
    metadata, _ = make()
    metadata.update_metadata(response(), partial=True)  # before the update
    metadata.update_started()
    new = MetadataResponseTopic(
        name="new", partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)]
    )
    brokers = [MetadataResponseBroker(1, "a", 1)]
    metadata.update_metadata(MetadataResponse(brokers=brokers, topics=[new]), partial=True)
    metadata.update_metadata(complete())
    assert metadata.topics() == {"new"}
    metadata.update_started()
    metadata.update_metadata(complete())
    assert metadata.topics() == set()


def test_listeners_hear_of_each_update_until_removed() -> None:
    metadata, _ = make()
    heard: list[ClusterMetadata] = []
    metadata.add_listener(heard.append)
    metadata.update_metadata(response())
    metadata.remove_listener(heard.append)
    metadata.update_metadata(response())
    assert heard == [metadata]
    with pytest.raises(ValueError, match=r"not in list"):
        metadata.remove_listener(heard.append)


def test_what_a_listener_raises_is_logged_and_keeps_nobody_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a listener's mistake")

    metadata, _ = make()
    heard: list[object] = []
    for listen in (fail, heard.append):
        metadata.add_listener(listen)
        metadata.add_request_listener(lambda listen=listen: listen("request"))  # type: ignore[misc]
    future = metadata.request_update()
    for listen in (fail, heard.append):
        future.add_done_callback(listen)
    metadata.update_metadata(response())
    assert heard == ["request", future, metadata]
    future.add_done_callback(fail)
    assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [ValueError] * 4
    assert "fail" in caplog.text


def test_whoever_carries_updates_out_hears_of_requests() -> None:
    metadata, _ = make()
    heard: list[str] = []
    metadata.add_request_listener(lambda: heard.append("due"))
    metadata.request_update()
    assert heard == ["due"]


def test_a_leaderless_partition_is_asked_for_again_soon() -> None:
    metadata, _ = make()
    metadata.update_metadata(response())
    assert metadata.ttl() == 100


@pytest.mark.parametrize(
    "found",
    [
        FindCoordinatorResponse(node_id=7, host="g", port=3),
        FindCoordinatorResponse(coordinators=[Coordinator("other", 1), Coordinator("g", 7, "g", 3)]),
    ],
)
def test_a_group_coordinator_of_any_version(found: FindCoordinatorResponse) -> None:
    metadata, _ = make()
    assert metadata.coordinator_for_group("g") is None
    assert metadata.add_group_coordinator("g", found) == 7
    assert metadata.coordinator_for_group("g") == 7
    assert metadata.broker_metadata(7) == BrokerMetadata(7, "g", 3)


def test_a_group_coordinator_that_is_not_available() -> None:
    metadata, _ = make()
    assert metadata.add_group_coordinator("g", FindCoordinatorResponse(error_code=15)) is None
    assert metadata.coordinator_for_group("g") == -1


def test_with_partitions_is_a_copy() -> None:
    metadata, _ = make()
    metadata.update_metadata(response())
    copy = metadata.with_partitions([("t", PartitionMetadata(9, 2)), ("new", PartitionMetadata(0, 2))])
    assert copy.partitions_for_topic("t") == {0, 1, 9}
    assert copy.leader_for_partition(TopicPartition("new", 0)) == 2
    assert metadata.partitions_for_topic("t") == {0, 1}
    assert metadata.partitions_for_topic("new") is None


def test_a_leader_hint_of_a_fetch_error_is_used_only_if_newer() -> None:
    metadata, _ = make()
    metadata.update_metadata(response(epoch=4))
    tp = TopicPartition("t", 0)
    assert not metadata.update_leader(tp, 2, 4)
    assert not metadata.update_leader(tp, 3, 5)  # nobody knows where 3 is
    assert not metadata.update_leader(TopicPartition("nope", 0), 2, 5)
    assert metadata.update_leader(tp, 3, 5, BrokerMetadata(3, "c", 3))
    assert metadata.leader_for_partition(tp) == 3
    assert metadata.broker_metadata(3) == BrokerMetadata(3, "c", 3)
    metadata.update_metadata(response(epoch=4))
    assert metadata.leader_for_partition(tp) == 3


def test_restore_keeps_leader_epochs_from_going_back() -> None:
    first, _ = make()
    first.update_metadata(response(leader=2, epoch=9))
    second, _ = make()
    second.restore(first.snapshot())
    second.update_metadata(response(leader=1, epoch=8))
    assert second.leader_for_partition(TopicPartition("t", 0)) == 2
    assert second.snapshot().version >= first.snapshot().version


def test_restore_leaves_nobody_waiting_and_metadata_as_due_as_it_was() -> None:
    metadata, _ = make()
    futures = [metadata.request_update(), metadata.request_update()]
    metadata.restore(metadata.snapshot())
    assert [future.result() for future in futures] == [metadata, metadata]
    assert metadata.ttl() == 0


def test_fail_requests_leaves_nobody_waiting() -> None:
    metadata, _ = make()
    metadata.update_started()
    futures = [metadata.request_update(), metadata.request_update()]
    metadata.fail_requests(LeaderNotAvailableError())
    assert all(isinstance(f.exception(), LeaderNotAvailableError) for f in futures)


@pytest.mark.parametrize(
    ("option", "value"), [("retry_backoff_ms", -1), ("metadata_max_age_ms", "5"), ("retry_backoff_ms", True)]
)
def test_an_option_that_can_not_be_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{option}: is .*accepts milliseconds"):
        make(**{option: value})


@pytest.mark.parametrize(
    "found",
    [FindCoordinatorResponse(coordinators=[Coordinator("other", 1, "o", 1)]), FindCoordinatorResponse()],
)
def test_an_answer_about_other_groups_says_nothing(found: FindCoordinatorResponse) -> None:
    metadata, _ = make()
    assert metadata.add_group_coordinator("g", found) is None
    assert metadata.coordinator_for_group("g") is None


def test_a_copy_with_partitions_is_as_old_and_remembers_as_much() -> None:
    metadata, clock = make()
    metadata.update_metadata(complete())
    clock.now += 100
    copy = metadata.with_partitions([("t", PartitionMetadata(0, 1))])
    assert copy.ttl() == metadata.ttl() == 200_000
    copy.request_update()
    assert (copy.ttl(), metadata.ttl()) == (0, 200_000)


def about(topic_id: uuid.UUID, leader: int) -> MetadataResponse:
    parts = [MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=0)]
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, partitions=parts)
    return MetadataResponse(brokers=[MetadataResponseBroker(1, "a", 1)], topics=[topic])


def test_former_ids_that_are_forgotten_are_believed_at_once() -> None:
    metadata, _ = make()
    former, present = (uuid.UUID(int=i) for i in (1, 2))
    for topic_id in (
        present,
        former,
        present,
    ):  # the broker in between was behind, and looked like a new topic
        metadata.update_metadata(about(topic_id, 1))
    assert metadata.snapshot().topic_id("t") == former.bytes
    metadata.forget_former_ids()
    metadata.update_metadata(about(present, 1))
    assert metadata.snapshot().topic_id("t") == present.bytes


def test_a_copy_with_partitions_is_not_fooled_by_an_answer_about_a_topics_former_self() -> None:
    metadata, _ = make()
    old, new = (uuid.UUID(int=i) for i in (1, 2))

    metadata.update_metadata(about(old, 1))
    metadata.update_metadata(about(new, 2))
    copy = metadata.with_partitions([])
    copy.update_metadata(about(old, 1))
    assert copy.leader_for_partition(TopicPartition("t", 0)) == 2
