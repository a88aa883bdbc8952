"""Questions to leaders, asked until each has an answer."""

from __future__ import annotations

from types import SimpleNamespace

from kafka_actors.cluster import ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.errors import (
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_actors.net.machines.leader_queries import AskLeader, LeaderQueries, LearnTopics
from kafka_actors.protocol import TopicPartition

A, B, C = (TopicPartition("t", i) for i in range(3))


def snapshot(*leaders: int, error: int = 0) -> ClusterSnapshot:
    parts = {i: PartitionMetadata(i, leader) for i, leader in enumerate(leaders)}
    return ClusterSnapshot(topics={"t": TopicMetadata("t", error_code=error, partitions=parts)})


def lookups(
    *tps: TopicPartition, deadline: float = 30.0, temporary: tuple[type[KafkaError], ...] = ()
) -> LeaderQueries[int]:
    return LeaderQueries(
        tps,
        "ListOffsets",
        deadline=deadline,
        retry_backoff=0.1,
        retry_backoff_max=1.0,
        rand=lambda: 0.5,
        temporary=temporary,
    )


def planned(q: LeaderQueries[int], known: ClusterSnapshot, now: float) -> SimpleNamespace:
    """What it asks for now, by kind."""
    q.snapshot = known
    ready = q.poll(now)
    learned = [action.topics for action in ready.actions if isinstance(action, LearnTopics)]
    return SimpleNamespace(
        ask={a.leader: a.partitions for a in ready.actions if isinstance(a, AskLeader)},
        unknown=frozenset().union(*learned),
        stale=RefreshMetadata() in [a for a in ready.actions if isinstance(a, RefreshMetadata)],
        wake=ready.next_wake,
    )


def moved(q: LeaderQueries[int], known: ClusterSnapshot) -> set[int]:
    q.snapshot = known
    return q.moved()


def test_partitions_are_asked_of_their_leaders_once() -> None:
    q = lookups(A, B, C)
    assert planned(q, snapshot(1, 2, 1), 0.0).ask == {1: [A, C], 2: [B]}
    assert planned(q, snapshot(1, 2, 1), 0.0).ask == {}
    for tp, leader in ((A, 1), (B, 2), (C, 1)):
        assert not q.answered(tp, leader, 0, 7 + tp.partition, 0.1)
    assert q.done
    assert q.answers == {A: 7, B: 8, C: 9}


def test_a_retriable_error_is_asked_again_after_a_pause_of_whoever_leads_then() -> None:
    q = lookups(A)
    planned(q, snapshot(1), 0.0)
    assert q.answered(A, 1, NotLeaderOrFollowerError.code, 0, 0.0)  # wants metadata
    early = planned(q, snapshot(2), 0.05)
    assert early.ask == {}
    assert early.wake == 0.1
    assert planned(q, snapshot(2), 0.2).ask == {2: [A]}


def test_pauses_grow_in_a_leaderless_window() -> None:
    q = lookups(A)
    now, tries = 0.0, 0
    while now < 20.0:
        plan = planned(q, snapshot(1), now)
        if plan.ask:
            tries += 1
            q.answered(A, 1, NotLeaderOrFollowerError.code, 0, now)
        now = planned(q, snapshot(1), now).wake
    assert tries <= 25


def test_partitions_that_failed_together_are_asked_about_in_one_request_again() -> None:
    tps = [TopicPartition("t", i) for i in range(300)]
    rands = iter(range(1_000))
    q = LeaderQueries[int](
        tps,
        "ListOffsets",
        deadline=30.0,
        retry_backoff=0.1,
        retry_backoff_max=1.0,
        rand=lambda: next(rands) / 1_000,
    )
    led = snapshot(*[1] * 300)
    now = 0.0
    for _ in range(4):
        assert planned(q, led, now).ask == {1: tps}
        for tp in tps[:150]:
            q.answered(tp, 1, NotLeaderOrFollowerError.code, 0, now)
        q.failed(1, tps[150:], DisconnectedError("gone"), now)
        now = planned(q, led, now).wake


def test_a_final_error_is_the_answer() -> None:
    q = lookups(A)
    planned(q, snapshot(1), 0.0)
    q.answered(A, 1, TopicAuthorizationFailedError.code, 0, 0.0)
    answer = q.answers[A]
    assert isinstance(answer, TopicAuthorizationFailedError)
    assert (answer.request, answer.topic, answer.partition) == ("ListOffsets", "t", 0)


def test_an_error_that_the_caller_calls_temporary_is_asked_again() -> None:
    patient, strict = lookups(A, temporary=(UnknownServerError,)), lookups(A)
    for q in (patient, strict):
        planned(q, snapshot(1), 0.0)
        assert not q.answered(A, 1, UnknownServerError.code, 0, 0.0)
    assert planned(patient, snapshot(1), 0.2).ask == {1: [A]}
    assert isinstance(strict.answers[A], UnknownServerError), "as Java's Admin has it"


def test_metadata_is_asked_for_where_the_leader_or_topic_is_not_known() -> None:
    plan = planned(lookups(A), snapshot(-1), 0.0)
    assert (plan.stale, plan.unknown) == (True, frozenset())
    plan = planned(lookups(A), ClusterSnapshot(), 0.0)
    assert (plan.stale, plan.unknown) == (False, {"t"})
    assert plan.wake == 0.1


def test_a_topic_that_is_not_authorized_is_final_at_once() -> None:
    q = lookups(A)
    assert not planned(q, snapshot(error=29), 0.0).stale
    assert isinstance(q.answers[A], TopicAuthorizationFailedError)


def test_a_lost_connection_is_asked_again_and_a_missing_version_is_not() -> None:
    q = lookups(A, B)
    planned(q, snapshot(1, 2), 0.0)
    q.failed(1, [A], DisconnectedError("gone"), 0.0)
    q.failed(2, [B], UnsupportedVersionError(), 0.0)
    assert isinstance(q.answers[B], UnsupportedVersionError)
    assert planned(q, snapshot(1, 2), 1.0).ask == {1: [A]}


def test_a_leader_that_no_longer_leads_is_not_waited_for() -> None:
    q = lookups(A, B)
    planned(q, snapshot(1, 2), 0.0)
    assert moved(q, snapshot(3, 2)) == {1}
    assert planned(q, snapshot(3, 2), 0.0).ask == {3: [A]}
    assert not q.answered(A, 1, 0, 99, 0.0)  # the old leader's late answer counts for nothing
    assert A not in q.answers


def test_a_leader_that_keeps_one_of_its_partitions_is_still_waited_for() -> None:
    q = lookups(A, B)
    planned(q, snapshot(1, 1), 0.0)
    assert moved(q, snapshot(2, 1)) == set()
    assert planned(q, snapshot(2, 1), 0.0).ask == {2: [A]}


def test_at_the_deadline_the_last_error_is_told() -> None:
    q = lookups(A, B, deadline=5.0)
    planned(q, snapshot(1), 0.0)
    q.answered(A, 1, UnknownTopicOrPartitionError.code, 0, 0.0)
    planned(q, snapshot(1), 4.9)
    assert not q.done
    planned(q, snapshot(1), 5.0)
    assert q.done
    assert isinstance(q.answers[A], KafkaTimeoutError)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(q.answers[A])
    assert isinstance(q.answers[A].__cause__, UnknownTopicOrPartitionError)
