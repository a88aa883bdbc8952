"""`BaseCoordinator` for a group protocol of one's own, its options, and what coordinators measure; fake brokers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from fakes.loop import in_loop
from fakes.members import PATIENT, PATIENT_S, commit, expel, group, member, refused
from waiting import until_async

from kafka_actors.cluster import SubscriptionState
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ConfigError, KafkaTimeoutError
from kafka_actors.group import BaseCoordinator, ConsumerCoordinator
from kafka_actors.metrics import Metrics
from kafka_actors.net import KafkaClient
from kafka_actors.testing.fake_kafka import AnswerWithError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FAST = {name: PATIENT[name] for name in ("session_timeout_ms", "heartbeat_interval_ms", "request_timeout_ms")}


class Shares(BaseCoordinator):
    """A group that shares out the letters of a word among those who ask for some."""

    def __init__(self, client, wants, **options):
        self.wants = wants
        self.calls = []
        super().__init__(
            client, max_poll_interval_ms=None, rebalance_timeout_ms=int(PATIENT_S * 1000), **options
        )

    def protocol_type(self):
        return "letters"

    def group_protocols(self):
        return [("first-come", json.dumps(self.wants).encode())]

    async def _perform_assignment(self, leader_id, protocol, members):
        assert leader_id == self.member_id
        assert protocol == "first-come"
        free, shares = set("abc"), {}
        for one in sorted(members, key=lambda m: m.member_id != leader_id):
            share = sorted(free & set(json.loads(one.metadata)))[:2]
            free -= set(share)
            shares[one.member_id] = json.dumps(share).encode()
        return shares

    async def _on_join_prepare(self, generation, member_id):
        self.calls.append(("give up", generation))

    async def _on_join_complete(self, generation, member_id, protocol, assignment):
        assert (member_id, protocol) == (self.member_id, "first-come")
        self.calls.append(("have", json.loads(assignment)))

    async def _on_membership_lost(self, reason):
        self.calls.append(("lost", reason))


@contextlib.asynccontextmanager
async def shares(kafka, wants, **options):
    client = KafkaClient(bootstrap_servers=kafka.bootstrap_servers)
    await client.bootstrap()
    one = Shares(client, wants, group_id="g", **FAST, **options)
    try:
        yield one
    finally:
        await one.close(timeout_ms=PATIENT_S * 1000)
        await client.close()


@in_loop
async def test_hooks_make_a_group_of_any_kind():
    async with group() as kafka, shares(kafka, "abc") as one:
        await one.ensure_active_group(timeout_ms=100_000)
        await until_async(lambda: one.calls == [("have", ["a", "b"])])
        assert one.leader
        assert not one.need_rejoin()
        async with shares(kafka, "bc") as two:
            await two.ensure_active_group(timeout_ms=100_000)
            await until_async(lambda: len(two.calls) == 1 and len(one.calls) == 3)
            # Everything was given up, in the generation it was had in, before it was shared out anew.
            assert one.calls[1] == ("give up", 1)
            assert one.calls[2] == ("have", ["a", "b"])
            assert two.calls == [("have", ["c"])]
        assert two.generation == -1
        assert two.member_id == ""
        await until_async(lambda: len(one.calls) >= 5)
        await expel(kafka, one.member_id)  # the coordinator forgets everybody
        await until_async(lambda: any(call[0] == "lost" for call in one.calls))
        await until_async(lambda: one.calls[-1] == ("have", ["a", "b"]))
        assert {call.request.protocol_type for call in kafka.requests("JoinGroup")} == {"letters"}


@in_loop
async def test_heartbeat_task_turns_heartbeats_off_and_on():
    async with group() as kafka, shares(kafka, "abc") as one:
        await one.ensure_active_group(timeout_ms=100_000)
        await until_async(lambda: kafka.count("Heartbeat") >= 2)
        one.heartbeat_task.disable()
        await until_async(lambda: one.last_heartbeat_sent_and_acked >= one.heartbeat.last_send)
        before = kafka.count("Heartbeat")
        await asyncio.sleep(0.5)
        assert kafka.count("Heartbeat") == before
        one.heartbeat_task.reset()
        await until_async(lambda: kafka.count("Heartbeat") > before)


@in_loop
async def test_coordinator_that_can_not_be_found_in_time_is_an_error_that_says_so():
    async with group() as kafka, shares(kafka, "abc") as one:
        kafka.on("FindCoordinator", AnswerWithError(15), times=None)
        with pytest.raises(KafkaTimeoutError, match="group g: the coordinator is not known after 300 ms"):
            await one.ensure_coordinator_known(timeout_ms=300)
        assert one.coordinator_unknown()


@in_loop
async def test_what_happens_is_measured():
    metrics, began = Metrics(), time.monotonic()
    async with group() as kafka, member(kafka, metrics=metrics) as one:
        await until_async(lambda: len(one.listener.has) == 2 and kafka.count("Heartbeat") >= 3)
        await one.member.commit_offsets_sync({A: OffsetAndMetadata(1)})
        values = {name.name: value for name, value in metrics.metrics().items()}
        assert values["join-total"] == values["sync-total"] == values["rebalance-total"] == 1
        assert values["failed-rebalance-total"] == 0
        assert values["commit-total"] == 1
        assert 0 < values["commit-latency-max"] < 1000 * (time.monotonic() - began)
        assert values["heartbeat-total"] >= 2
        assert 0 <= values["last-heartbeat-seconds-ago"] < time.monotonic() - began
        assert values["assigned-partitions"] == 2
        one.member.request_rejoin("to see it counted")
        await until_async(lambda: {n.name: v for n, v in metrics.metrics().items()}["rebalance-total"] == 2)
    assert metrics.metrics() == {}


@in_loop
async def test_committed_offsets_are_asked_for_only_where_they_may_have_changed():
    async with group() as kafka:
        await commit(kafka, A, 5, "noted")
        async with member(kafka) as one:
            await until_async(lambda: len(one.listener.has) == 2)
            refresh = one.member.refresh_committed_offsets_if_needed
            assert await refresh() == {A: (5, "noted", -1), B: None}
            assert kafka.count("OffsetFetch") == 1
            assert await refresh() == {A: (5, "noted", -1), B: None}
            assert kafka.count("OffsetFetch") == 1
            await one.member.commit_offsets_sync({B: OffsetAndMetadata(7)})
            assert await refresh() == {A: (5, "noted", -1), B: (7, "", -1)}
            asked = kafka.requests("OffsetFetch")[-1].request.groups[0].topics
            assert [(t.name, t.partition_indexes) for t in asked] == [("t", [1])]
            async with member(kafka) as two:
                await until_async(lambda: len(two.listener.has) == 1 and one.member.joined)
                assert set(await refresh()) == one.listener.has


@in_loop
async def test_default_callback_of_commits_can_be_another_one():
    told = []

    callback = lambda offsets, outcome: told.append((offsets, outcome))  # noqa: E731
    async with group() as kafka, member(kafka, default_offset_commit_callback=callback) as one:
        await until_async(lambda: len(one.listener.has) == 2)
        kafka.on("OffsetCommit", refused(0, 28))
        offsets = {A: OffsetAndMetadata(1, "much too long")}
        outcome = await one.member.commit_offsets_async(offsets)
        assert told == [(offsets, outcome)]
        assert outcome[A].code == 28


def coordinator(**options):
    return ConsumerCoordinator(KafkaClient(), SubscriptionState(), **options)


def test_options_have_the_names_and_defaults_of_kafkas_consumer():
    config = ConsumerConfig()
    for kind in (BaseCoordinator, ConsumerCoordinator):
        defaults = dict(kind.DEFAULT_CONFIG)
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "retry_backoff_ms", "group_id"):
            assert defaults[name] == getattr(config, name)
    defaults = ConsumerCoordinator.DEFAULT_CONFIG
    assert defaults["assignors"] == ["cooperative-sticky"]
    assert defaults["metric_group_prefix"] == "consumer"
    assert defaults["enable_auto_commit"] is True
    assert defaults["auto_commit_interval_ms"] == 5_000
    assert defaults["exclude_internal_topics"] is True
    assert callable(defaults["default_offset_commit_callback"])


@in_loop
async def test_options_may_be_given_one_by_one():
    made = coordinator(
        group_id="g",
        assignors=["range", "roundrobin"],
        session_timeout_ms=20_000,
        exclude_internal_topics=False,
        metric_group_prefix="job",
    )
    assert [name for name, _ in made.group_protocols()] == ["range", "roundrobin"]
    assert made.subscription.exclude_internal_topics is False
    assert made.protocol_type() == "consumer"
    assert {name.group for name in made.metrics.metrics()} == {"job-coordinator-metrics"}
    await made.close()
    assert made.metrics.metrics() == {}


@pytest.mark.parametrize(
    ("options", "names", "says"),
    [
        ({}, "group_id", "is missing"),
        ({"group_id": "g", "session_timeout": 5}, "session_timeout", "is no option of ConsumerCoordinator"),
        ({"group_id": "g", "fetch_max_bytes": 5}, "fetch_max_bytes", "is no option of ConsumerCoordinator"),
        ({"group_id": "g", "api_version": (0, 9)}, "api_version", "give it to the KafkaClient"),
        ({"group_id": "g", "session_timeout_ms": "soon"}, "session_timeout_ms", "expected `int`"),
        ({"group_id": "g", "heartbeat_interval_ms": 60_000}, "heartbeat_interval_ms", "lower than"),
        ({"group_id": "g", "assignors": ["best"]}, "partition_assignment_strategy", "best"),
        ({"group_id": "g", "config": ConsumerConfig(group_id="h")}, "group_id", "not both"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(options, names, says):
    with pytest.raises(ConfigError, match=says) as caught:
        coordinator(**options)
    assert caught.value.option == names
