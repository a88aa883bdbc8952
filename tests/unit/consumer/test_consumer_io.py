"""The part of a consumer in the IO thread: what it commits, gives up, begins anew and closes, over a group that answers as told."""

import asyncio
import functools
from types import SimpleNamespace

import pytest
from fakes.virtual_time import run_in_virtual_time

from kafka_actors.cluster import SubscriptionState
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.consumer.consumer_io import CLOSE_S, ConsumerIO
from kafka_actors.consumer.delivery import Delivery
from kafka_actors.consumer.operations import ConsumerOperations
from kafka_actors.consumer.rebalance import ConsumerRebalanceListener, PollTasks
from kafka_actors.errors import (
    ConfigError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaTimeoutError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.events import NoCommittedOffset, OffsetReset
from kafka_actors.group import CommittedStart
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))
AT_5 = {A: OffsetAndMetadata(5)}


def snapshot(partitions=3, topic_id=None):
    of_topic = {p: PartitionMetadata(p, 1, 4) for p in range(partitions)}
    return ClusterSnapshot(
        brokers={1: BrokerMetadata(1, "h", 1)},
        topics={"t": TopicMetadata("t", topic_id, partitions=of_topic)},
    )


class Group:
    """A coordinator that takes commits, or raises `error`, or refuses partitions of `refused`."""

    losing = False

    def __init__(self):
        self.error, self.refused, self.starts = None, {}, {}
        self.commits, self.timeouts, self.closed = [], [], []
        self.begun = self.polls = 0

    async def start(self):
        self.begun += 1

    async def commit_offsets_sync(self, offsets, *, timeout_ms=None):
        self.commits.append(offsets)
        self.timeouts.append(timeout_ms)
        if self.error is not None:
            raise self.error
        return {tp: self.refused.get(tp) for tp in offsets}

    async def fetch_committed_starts(self, partitions):
        return {tp: self.starts[tp] for tp in partitions if tp in self.starts}

    def user_progress(self):
        self.polls += 1

    async def close(self, **how):
        self.closed.append(how)


class Scene:
    """A consumer's part in the IO thread. Its metadata is there, and it connects to nothing."""

    def __init__(self, **options):
        self.events, self.attention = [], 0
        self.starts, self.revoked = [], []
        options = {"group_id": "g", "bootstrap_servers": "a:1", **options}
        self.core = ConsumerIO(
            build(ConsumerConfig, options),
            SubscriptionState(),
            events=self.events.append,
            on_attention=self.attend,
            on_ready=lambda: None,
            clock=asyncio.get_running_loop().time,
        )
        self.group = Group()
        self.core._coordinator = self.group
        self.see(snapshot())
        fetcher = self.core.fetcher
        self.assign, self.revoke = fetcher.assign, fetcher.revoke
        fetcher.assign = lambda starts: self.starts.append(starts) or self.assign(starts)
        fetcher.revoke = lambda partitions: self.revoked.append(set(partitions)) or self.revoke(partitions)
        self.release = fetcher.release
        fetcher.release = lambda drained: self.revoked.append(set(drained)) or self.release(drained)
        self.core.client.set_topics = lambda topics: asyncio.ensure_future(nothing())

    def attend(self):
        self.attention += 1

    async def take_on(self, partitions):
        self.core.begin_fetching(await self.core.starts(partitions))

    def see(self, metadata):
        """Has the cluster be so."""
        self.core.client.cluster._snapshot = metadata
        assert self.core.client.snapshot is metadata


async def nothing(*_):
    """What a test doesn't need."""


async def never(*_, **__):
    await asyncio.Event().wait()


def in_virtual_time(test):
    """Decorator: the coroutine function becomes a plain test, whose waits take no time."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        run_in_virtual_time(test(*args, **kwargs))

    return run


# ------------------------------------------------------------ the beginning and the end


@in_virtual_time
async def test_a_beginning_that_never_ends_is_a_timeout_that_says_what_was_reached():
    core = Scene(request_timeout_ms=5_000).core
    core.client.bootstrap = never
    with pytest.raises(KafkaTimeoutError, match="no answer within 15 s: a broker was reached"):
        await core.begin()


@pytest.mark.parametrize(
    ("instance", "leaves"), [(None, True), ("i", False), ("auto", True)], ids=["dynamic", "static", "made up"]
)
@in_virtual_time
async def test_the_last_commit_comes_before_the_end_of_the_membership_which_a_static_member_keeps(
    instance, leaves
):
    scene = Scene(group_instance_id=instance)
    await scene.core.close(AT_5, 8.0)
    assert scene.group.commits == [AT_5]
    [how] = scene.group.closed
    assert (how["leave"], how["autocommit"]) == (leaves, False)
    assert scene.group.timeouts[0] + how["timeout_ms"] < 8_000


@pytest.mark.parametrize(
    "error",
    [FencedInstanceIdError(), ValueError("mine"), None],
    ids=["refused", "an assignor's", "no answer"],
)
@in_virtual_time
async def test_a_last_commit_that_fails_is_logged_and_everything_is_closed_all_the_same(error, caplog):
    scene = Scene()
    closed = []
    for name, part in (("fetcher", scene.core.fetcher), ("client", scene.core.client)):
        part.close = lambda name=name: closed.append(name) or nothing()
    if error is None:
        scene.group.commit_offsets_sync = never
    scene.group.error = error
    await scene.core.close(AT_5, 2.0)
    assert closed == ["fetcher", "client"]
    why = error or "no answer in time"
    assert f"the last commit of the group may be missing: {why}" in caplog.text
    assert len(scene.group.closed) == 1, "it leaves the group in any case"


@in_virtual_time
async def test_connections_that_do_not_close_are_given_up(caplog):
    core = Scene().core
    core.client.close = never
    began = asyncio.get_running_loop().time()
    await core.close({}, 1.0)
    assert asyncio.get_running_loop().time() - began < CLOSE_S + 0.1
    assert "they are given up" in caplog.text


@in_virtual_time
async def test_the_users_thread_is_woken_again_and_again_and_told_when_an_auto_commit_is_due():
    scene = Scene(auto_commit_interval_ms=3_000)
    ticking = asyncio.create_task(scene.core._tick())
    await asyncio.sleep(2.5)
    assert (scene.attention, scene.core.commit_due) == (2, False)
    await asyncio.sleep(1.0)
    assert (scene.attention, scene.core.commit_due) == (3, True)
    ticking.cancel()


@in_virtual_time
async def test_a_consumer_without_auto_commit_is_never_told_of_one():
    for options in ({"enable_auto_commit": False}, {"group_id": None}):
        scene = Scene(auto_commit_interval_ms=100, **options)
        ticking = asyncio.create_task(scene.core._tick())
        await asyncio.sleep(5.5)
        assert not scene.core.commit_due
        ticking.cancel()


# ------------------------------------------------------------ partitions


@in_virtual_time
async def test_partitions_begin_at_their_committed_offsets_each_time_under_an_epoch_of_their_own():
    scene = Scene()
    scene.group.starts = {A: CommittedStart(7, 3, b"i" * 16, counts=True)}
    await scene.take_on(frozenset({A, B}))
    await scene.take_on(frozenset({C}))
    first, second = scene.starts
    assert (first[A].offset, first[A].leader_epoch, first[A].topic_id) == (7, 3, b"i" * 16)
    assert first[B].offset is None
    assert first[A].epoch != second[C].epoch
    assert not any(start.from_start for start in (*first.values(), *second.values()))


@in_virtual_time
async def test_a_partition_that_appears_later_is_read_from_its_start_and_so_is_a_topic_made_anew():
    scene = Scene()
    scene.see(snapshot(1, b"1" * 16))
    await scene.take_on(frozenset({A}))
    scene.see(snapshot(2, b"1" * 16))
    await scene.take_on(frozenset({B}))
    scene.see(snapshot(2, b"2" * 16))
    await scene.take_on(frozenset({A}))
    assert [start.from_start for starts in scene.starts for start in starts.values()] == [False, True, True]


@pytest.mark.parametrize("subscription", [{"topics": ["t"]}, {"pattern": "t.*"}], ids=["topics", "pattern"])
@pytest.mark.parametrize("tracked", [True, False], ids=["known before", "known later"])
@in_virtual_time
async def test_a_member_without_a_partition_of_a_topic_reads_one_that_appears_from_its_start(
    subscription, tracked
):
    """Its records came while nobody read it: from the end of the log they would never be read, and no event would say so."""
    scene = Scene()
    scene.see(snapshot(1) if tracked else ClusterSnapshot())
    scene.core.subscription.subscribe(**subscription)
    await scene.core.subscribed()
    for partitions in (1, 3):
        scene.see(snapshot(partitions))
        if not tracked:
            scene.core._on_metadata()
    await scene.take_on(frozenset({A, B, C}))
    [starts] = scene.starts
    assert {tp: start.from_start for tp, start in starts.items()} == {A: False, B: True, C: True}


@in_virtual_time
async def test_a_topic_that_was_not_there_begins_with_the_partitions_that_it_is_first_seen_with():
    scene = Scene()
    scene.see(ClusterSnapshot(topics={"t": TopicMetadata("t", error_code=UnknownTopicOrPartitionError.code)}))
    scene.core.subscription.subscribe(topics=["t"])
    await scene.core.subscribed()
    scene.core._on_metadata()
    scene.see(snapshot(2))
    scene.core._on_metadata()
    await scene.take_on(frozenset({A, B}))
    assert not any(start.from_start for start in scene.starts[0].values())


@pytest.mark.parametrize("ends", ["known", "failed", "never", "cut off"])
@in_virtual_time
async def test_a_pattern_is_joined_with_when_its_topics_are_known_or_nobody_tells_them(ends):
    """With those of before the group would rebalance for nothing, and the user be told that no topic matches."""
    scene = Scene()
    scene.core.subscription.subscribe(pattern="t.*")
    metadata = asyncio.get_running_loop().create_future()
    asked = []
    scene.core.client.set_topics = lambda topics: asked.append(topics) or metadata
    subscribing = asyncio.create_task(scene.core.subscribed())
    await asyncio.sleep(5.0)
    assert (asked[0], scene.group.begun) == (None, 0)
    if ends == "known":
        metadata.set_result(None)
    elif ends == "failed":
        metadata.set_exception(NodeNotReadyError("no broker may be asked now"))
    elif ends == "cut off":
        subscribing.cancel()
    await asyncio.sleep(6.0)
    assert (subscribing.done(), subscribing.cancelled()) == (True, ends == "cut off")
    assert scene.group.begun == 1


@in_virtual_time
async def test_partitions_assigned_by_hand_are_begun_also_where_no_broker_tells_their_topics():
    scene = Scene()
    metadata = asyncio.get_running_loop().create_future()
    metadata.set_exception(NodeNotReadyError("no broker may be asked now"))
    scene.core.client.set_topics = lambda topics: metadata
    await scene.core.assigned(frozenset({A}), {})
    assert [set(starts) for starts in scene.starts] == [{A}]


@in_virtual_time
async def test_by_hand_what_stays_keeps_its_position_and_what_goes_is_committed():
    scene = Scene()
    await scene.core.assigned(frozenset({A, B}), {})
    await scene.core.assigned(frozenset({B, C}), AT_5)
    assert [set(starts) for starts in scene.starts] == [{A, B}, {C}]
    assert scene.revoked[-1] == {A}
    assert scene.group.commits == [AT_5]


@in_virtual_time
async def test_what_is_revoked_goes_also_where_it_cannot_be_committed(caplog):
    scene = Scene()
    await scene.take_on(frozenset({A}))
    scene.group.error = IllegalGenerationError()
    await scene.core.commit_and_revoke(scene.core.stop_delivery(frozenset({A})), AT_5)
    assert scene.core.fetcher.partitions == frozenset()
    assert "offsets of revoked partitions could not be committed" in caplog.text
    gone = {TopicPartition("t", 9): OffsetAndMetadata(1)}
    scene.group.commits.clear()
    await scene.core.commit_and_revoke({}, gone)
    assert scene.group.commits == [], "a commit of a partition that is gone would be retried in vain"


@in_virtual_time
async def test_what_was_assigned_anew_while_its_last_commit_was_under_way_stays():
    """The group goes on a second after a revocation's time, whatever its commit does then."""
    scene = Scene()
    await scene.take_on(frozenset({A, B}))
    scene.group.commit_offsets_sync = never
    revoking = asyncio.create_task(
        scene.core.commit_and_revoke(scene.core.stop_delivery(frozenset({A, B})), AT_5)
    )
    await asyncio.sleep(1.0)
    await scene.take_on(frozenset({A}))
    revoking.cancel()
    await asyncio.wait({revoking})
    assert scene.core.fetcher.partitions == {A}


@in_virtual_time
async def test_a_callback_that_outlasts_its_revocation_takes_nothing_of_the_next_assignment():
    """It would never be read again: the group has it as owned, and the fetcher hasn't."""
    core = Scene().core
    called = []
    tasks = PollTasks(session_of(core, called))
    await core.rebalances.on_partitions_assigned(frozenset({A}))
    revoking = asyncio.create_task(core.rebalances.on_partitions_revoked(frozenset({A}), 1.0))
    await asyncio.sleep(0)
    calls = tasks.attend()
    next(calls)()
    assert called == [("assigned", [A])]
    callback = next(calls)  # which runs from here on, in the user's thread
    revoking.cancel()
    await asyncio.wait({revoking})
    assert core.fetcher.partitions == frozenset()
    await core.rebalances.on_partitions_assigned(frozenset({A}))
    callback()
    for call in calls:
        call()
    assert called == [("assigned", [A]), ("revoked", [A]), ("assigned", [A])]
    assert core.fetcher.partitions == {A}


@in_virtual_time
async def test_nothing_is_committed_by_a_callback_that_outlasts_its_revocation():
    """Neither by a commit, which would return and have committed nothing, nor by a transaction under the member's next generation."""
    core = Scene(enable_auto_commit=False).core
    core.group_metadata = lambda group_id: ConsumerGroupMetadata(group_id, 4, "m")
    session = session_of(core, [])
    operations = ConsumerOperations(session)
    tasks = PollTasks(session)
    await core.rebalances.on_partitions_assigned(frozenset({A}))
    session.reader.handed.add(A)
    revoking = asyncio.create_task(core.rebalances.on_partitions_revoked(frozenset({A}), 1.0))
    await asyncio.sleep(0)
    calls = tasks.attend()
    next(calls)
    next(calls)  # runs from here on, in the user's thread
    assert result(operations.group_metadata()).generation_id == 4
    revoking.cancel()
    await asyncio.wait({revoking})
    for call in (operations.group_metadata(), operations.commit(None, 1_000)):
        with pytest.raises(IllegalGenerationError, match="t-0: it was lost"):
            result(call)
    assert list(calls) == []
    assert result(operations.group_metadata()).generation_id == 4


@in_virtual_time
async def test_who_may_not_read_one_topic_gives_others_up_all_the_same_while_its_polls_raise():
    """Else the group would wait for it at each rebalance, as long as a drain may take, and take it for one that polls no more."""
    core = Scene().core
    called, posted = [], []
    session = session_of(core, called)
    session.io.post = posted.append
    tasks = PollTasks(session)
    await core.rebalances.on_partitions_assigned(frozenset({A}))
    core._topics_checked(TopicAuthorizationFailedError(topic="u"))
    revoking = asyncio.create_task(core.rebalances.on_partitions_revoked(frozenset({A}), 150.0))
    await asyncio.sleep(0)

    def polls() -> None:
        for call in tasks.attend():
            call()

    with pytest.raises(TopicAuthorizationFailedError):
        polls()
    async with asyncio.timeout(1.0):
        await revoking
    assert called == [("assigned", [A]), ("revoked", [A])]
    assert posted == [core.progress]


def result(steps):
    """The result of a call that has nothing to wait for."""
    try:
        pytest.fail(f"waits for {next(steps)}")
    except StopIteration as end:
        return end.value


def session_of(core, called):
    """The parts of a session that rebalances need; the listener's calls are noted in `called`."""
    listener = ConsumerRebalanceListener()
    listener.on_partitions_assigned = lambda partitions: called.append(("assigned", partitions))
    listener.on_partitions_revoked = lambda partitions: called.append(("revoked", partitions))
    return SimpleNamespace(
        core=core,
        fetcher=core.fetcher,
        reader=Delivery(core.fetcher, core.observer),
        listener=listener,
        io=SimpleNamespace(post=lambda _: None),
        check_open=lambda: None,
        check_wanted=lambda: None,
        check_group=lambda: None,
        connect=lambda limit=None: iter(()),
        assignment=lambda: core.fetcher.partitions,
        config=core.config,
        attention=False,
    )


@pytest.mark.parametrize("ending", ["close", "unsubscribe"])
@in_virtual_time
async def test_a_revocation_that_the_users_thread_does_not_take_any_more_ends_after_the_last_commit(ending):
    """Before it nothing of the partitions could be committed; and the group would wait for minutes."""
    scene = Scene()
    core = scene.core
    await core.rebalances.on_partitions_assigned(frozenset({A}))
    revoking = asyncio.create_task(core.rebalances.on_partitions_revoked(frozenset({A}), 150.0))
    over = []

    async def commit(offsets, **_):
        await asyncio.sleep(1.0)
        over.append(revoking.done())
        return {}

    scene.group.commit_offsets_sync = commit
    await (core.close(AT_5, 8.0) if ending == "close" else core.unsubscribed(AT_5))
    async with asyncio.timeout(1.0):
        await revoking
    assert over == [False]
    assert core.rebalances.lost == frozenset(), "the listener was told before the end"


@pytest.mark.parametrize(
    "error", [None, UnknownMemberIdError(), ValueError("mine")], ids=["committed", "refused", "an assignor's"]
)
@in_virtual_time
async def test_unsubscribed_it_holds_nothing_and_its_error_is_over(error):
    scene = Scene()
    scene.core.subscription.subscribe(topics=["t"])
    await scene.take_on(frozenset({A}))
    scene.group.error = error
    scene.core.fail(TopicAuthorizationFailedError(topic="t"))
    await scene.core.unsubscribed(AT_5)
    assert (scene.core.error, scene.core.fetcher.partitions) == (None, frozenset())
    assert (len(scene.group.closed), scene.core._coordinator) == (1, None)
    assert not scene.core.subscription.uses_group


@in_virtual_time
async def test_a_poll_counts_for_the_group_only_while_it_is_subscribed_to():
    scene = Scene()
    scene.core.progress()
    assert scene.group.polls == 0
    await scene.core.subscribed()
    scene.core.progress()
    assert (scene.group.begun, scene.group.polls) == (1, 1)


@pytest.mark.parametrize(
    ("interval_ms", "heartbeat_ms", "drain_s"),
    [(300_000, 3_000, 292.0), (60_000, 10_000, 45.0), (6_000, 300, 3.0)],
    ids=["defaults", "slow heartbeats", "short"],
)
@in_virtual_time
async def test_the_group_waits_for_a_poll_for_as_long_as_there_is_time_to_join_it_then(
    interval_ms, heartbeat_ms, drain_s
):
    """A batch whose work takes less than `max_poll_interval_ms` is finished before its partition goes to another member, as in Java."""
    core = Scene(max_poll_interval_ms=interval_ms, heartbeat_interval_ms=heartbeat_ms).core
    core._coordinator = None
    config = (await core._use_group())._driver.machine.config
    assert config.rebalance_timeout == config.max_poll_interval == interval_ms / 1000
    assert config.revoke_timeout == drain_s


# ------------------------------------------------------------ commits and offsets


@in_virtual_time
async def test_a_commit_raises_the_error_of_the_partition_that_was_refused():
    scene = Scene()
    scene.group.refused = {A: UnknownMemberIdError()}
    with pytest.raises(UnknownMemberIdError):
        await scene.core.commit({**AT_5, B: OffsetAndMetadata(1)}, 5.0)


@in_virtual_time
async def test_the_check_of_a_commit_and_its_request_share_the_time_of_the_call():
    scene = Scene()

    async def check(offsets):
        await asyncio.sleep(3.0)

    scene.core.topics.check_partitions = check
    await scene.core.commit(AT_5, 5.0)
    [left_ms] = scene.group.timeouts
    assert left_ms == pytest.approx(2_000, abs=1)
    with pytest.raises(KafkaTimeoutError, match="no broker described the partitions within 2 s"):
        await scene.core.commit(AT_5, 2.0)


@in_virtual_time
async def test_an_auto_commit_that_fails_says_so_and_raises_nothing(caplog):
    scene = Scene()
    assert await scene.core.commit_quietly(AT_5)
    assert await scene.core.commit_quietly({TopicPartition("t", 9): OffsetAndMetadata(1)})
    assert scene.group.commits == [AT_5]
    scene.group.refused = {A: UnknownMemberIdError()}
    assert not await scene.core.commit_quietly(AT_5)
    assert "auto-commit failed, the next one will cover it" in caplog.text


@in_virtual_time
async def test_without_a_group_only_reading_by_hand_is_possible():
    scene = Scene(group_id=None)
    await scene.take_on(frozenset({A}))
    assert scene.starts[0][A].offset is None
    for call in (scene.core.subscribed(), scene.core.committed([A], 1.0), scene.core.commit(AT_5, 1.0)):
        with pytest.raises(ConfigError, match="group_id"):
            await call


@in_virtual_time
async def test_offsets_of_logs_are_all_or_the_error_of_one():
    scene = Scene()
    found = {A: SimpleNamespace(offset=1), B: UnknownTopicOrPartitionError(topic="t", partition=1)}

    async def list_offsets(wanted, *, isolation_level, timeout_ms, temporary):
        assert (timeout_ms, temporary) == (1_500, (UnknownServerError,))
        return {tp: found[tp] for tp in wanted}

    scene.core.lookups.list_offsets = list_offsets
    assert await scene.core.list_offsets({A: -1}, 1.5) == {A: found[A]}
    with pytest.raises(UnknownTopicOrPartitionError, match="t-1"):
        await scene.core.list_offsets({A: -1, B: -1}, 1.5)


@in_virtual_time
async def test_a_look_up_that_takes_long_says_what_it_waits_for(caplog):
    scene = Scene()
    scene.core.lookups.list_offsets = never
    for tp in (A, TopicPartition("t", 7), TopicPartition("typo", 0)):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await scene.core.list_offsets({A: -1, tp: -1}, 60)
    assert [message.split(",")[0] for message in caplog.messages] == [
        "offsets are waited for until timeout_ms: their leaders have not answered yet",
        "t has no partition 7: it has 3",
        "topic 'typo' is not in the cluster's metadata",
    ]


@in_virtual_time
async def test_the_position_of_a_partition_that_does_not_exist_is_an_error_that_says_so():
    scene = Scene()
    none = TopicPartition("t", 7)
    await scene.take_on(frozenset({none}))
    with pytest.raises(KafkaTimeoutError, match="is not known: t has no partition 7: it has 3"):
        await scene.core.position(none, 1.0)


@in_virtual_time
async def test_a_wait_for_a_position_ends_with_it_or_with_the_reason_why_there_is_none():
    scene = Scene()
    await scene.take_on(frozenset({A, B}))
    with pytest.raises(KafkaTimeoutError, match=r"the position of t-0 is not known: \w+"):
        await scene.core.position(A, 1.0)
    wait = asyncio.create_task(scene.core.position(A, 1.0))
    await asyncio.sleep(0.5)
    scene.core.fetcher.seek(A, 7)
    await wait
    scene.core.fail(TopicAuthorizationFailedError(topic="t"))
    with pytest.raises(TopicAuthorizationFailedError):
        await scene.core.position(B, 1.0)


# ------------------------------------------------------------ errors and events for the user's thread


@in_virtual_time
async def test_the_first_error_stays_and_a_new_subscription_ends_one_of_topics_only():
    scene = Scene()
    scene.core._topics_checked(TopicAuthorizationFailedError(topic="t"))
    again = TopicAuthorizationFailedError(topic="t")
    scene.core._topics_checked(again)  # with each refresh of the metadata
    assert (scene.core.error, scene.attention) == (again, 2)
    await scene.core.subscribed()
    assert scene.core.error is None
    first, second = FencedInstanceIdError(), UnknownServerError()
    scene.core.fail(first)
    scene.core.fail(second)
    await scene.core.subscribed()
    assert scene.core.error is first


@in_virtual_time
async def test_the_end_of_the_membership_is_not_over_when_the_topic_may_be_read_again():
    """Without rights for the topic the group's offsets are refused too, which ends the member: it would poll in vain without a word."""
    scene = Scene()
    scene.core._topics_checked(TopicAuthorizationFailedError(topic="t"))
    scene.core.fail(ended := TopicAuthorizationFailedError(topic="t"))
    scene.core._topics_checked(TopicAuthorizationFailedError(topic="t"))
    scene.core._topics_checked(None)
    assert scene.core.error is ended


@in_virtual_time
async def test_a_topic_that_may_be_read_again_is_read_on():
    """Brokers that have just started may know their ACLs later than their topics; Java's client reads on, too."""
    scene = Scene()
    scene.core.subscription.subscribe(["t"])
    refused = ClusterSnapshot(topics={"t": TopicMetadata("t", error_code=TopicAuthorizationFailedError.code)})
    for metadata, error in ((refused, TopicAuthorizationFailedError), (snapshot(), type(None))):
        scene.see(metadata)
        scene.core._on_metadata()
        assert type(scene.core.error) is error
    scene.core.fail(fenced := FencedInstanceIdError())
    scene.core._on_metadata()
    assert scene.core.error is fenced


@in_virtual_time
async def test_a_reset_wakes_the_users_thread_whose_records_it_makes_void():
    scene = Scene()
    plain, reset = NoCommittedOffset("t", 0, 5, "earliest"), OffsetReset("t", 0, 9, 5, "truncated")
    scene.core._on_event(plain)
    assert scene.attention == 0
    scene.core._on_event(reset)
    assert (scene.attention, scene.events) == (1, [plain, reset])


@pytest.mark.parametrize(
    ("uses_group", "generation", "losing", "handling"),
    [
        (True, 3, False, False),
        (False, -1, False, False),
        (True, -1, False, False),
        (True, 4, True, False),
        (True, 4, False, True),
    ],
    ids=["member", "by hand", "none", "lost the one before", "is told of that"],
)
def test_a_subscriber_outside_of_its_group_has_no_membership(uses_group, generation, losing, handling):
    found = ConsumerGroupMetadata("g", generation, "m")
    core = SimpleNamespace(
        rebalances=SimpleNamespace(handling_loss=handling),
        _coordinator=SimpleNamespace(group_metadata=lambda: found, losing=losing),
        subscription=SimpleNamespace(uses_group=uses_group),
    )
    if losing or handling or (uses_group and generation < 0):
        with pytest.raises(IllegalGenerationError, match="not a member of its group now"):
            ConsumerIO.group_metadata(core, "g")
    else:
        assert ConsumerIO.group_metadata(core, "g") == found
