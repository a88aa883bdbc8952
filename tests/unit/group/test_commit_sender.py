"""`CommitSender` with a real member and its ownership, over channels that keep what they are to send."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UsageError,
)
from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.group.commit_sender import CommitSender, default_offset_commit_callback
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.group.machines.member_core import MemberState
from kafka_actors.group.machines.member_events import Partitions
from kafka_actors.group.machines.topic_ids import TopicIds
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = b"o" * 16, b"n" * 16


def answer(codes: dict[TopicPartition, int]) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(tp.topic, partitions=[OffsetCommitResponsePartition(tp.partition, code)])
        for tp, code in codes.items()
    ]
    return OffsetCommitResponse(topics=topics)


class Stage:
    """A member that owns `t-0` and `t-1`, and the sender of its commits. `sent`: what was sent and has no answer."""

    def __init__(self, dialogue: Any, *, on_data_loss: str = "reset", by_hand: bool = False) -> None:
        self.member = dialogue()
        if by_hand:
            self.member.connect()
        else:
            self.member.stable("t-0", "t-1")
        self.sent: list[tuple[Any, Any]] = []
        self.ids: dict[str, bytes] = {"t": OLD}
        self.topic_ids = TopicIds()
        self.took: list[tuple[float, object]] = []
        self.wakes = 0
        self.commits: Callable[[Partitions], Partitions] = lambda owned: owned
        client: Any = SimpleNamespace(
            snapshot=SimpleNamespace(topic_id=lambda topic: self.ids.get(topic), cluster_id="c-1")
        )
        self.driver: Any = SimpleNamespace(
            machine=self.member.member,
            channels=SimpleNamespace(start=lambda *what: self.sent.append(what), server={}),
            now=lambda: self.member.now,
            wake=self._wake,
            find_coordinator=lambda: None,
            fatal=None,
        )
        self.sender = CommitSender(
            self.driver,
            client,
            SimpleNamespace(uses_group=not by_hand),  # type: ignore[arg-type]
            lambda: self.commits(self.member.ownership.owned() | self.member.ownership.releasing),
            self.topic_ids,
            on_data_loss=on_data_loss,
            on_answer=lambda seconds, outcome, server: self.took.append((seconds, outcome)),
            rand=lambda: 0.5,
        )
        self.metadata_is(OLD)

    def _wake(self) -> None:
        self.wakes += 1

    def metadata_is(self, topic_id: bytes) -> None:
        """New metadata, as the coordinator hands it on."""
        self.ids["t"] = topic_id
        if changed := self.topic_ids.changed(self.member.ownership.owned(), self.ids):
            self.sender.on_recreated(changed)

    def commit(
        self, offsets: dict[TopicPartition, int], metadata: str = "", timeout: float = 60.0
    ) -> asyncio.Future[Any]:
        named = {tp: OffsetAndMetadata(offset, metadata, 3) for tp, offset in offsets.items()}
        return self.sender.submit(named, timeout)

    async def poll(self, seconds: float = 0.0) -> None:
        """Time passes, and the driver's loop carries out what is decided."""
        self.member.now += seconds
        for action in self.sender.poll(self.member.now).actions:
            self.sender.carry_out(action)
        await asyncio.sleep(0)

    def out(self) -> dict[TopicPartition, int]:
        """The offsets in the one request that is out."""
        ((request, _),) = self.sent
        assert request.api is GroupApi.COMMIT
        return {
            TopicPartition(topic.name, p.partition_index): p.committed_offset
            for topic in request.body.topics
            for p in topic.partitions
        }

    def metadata_out(self) -> list[Any]:
        ((request, _),) = self.sent
        return [unpack(p.committed_metadata) for topic in request.body.topics for p in topic.partitions]

    async def answered(self, outcome: object) -> None:
        ((request, deliver),) = self.sent
        self.sent.clear()
        deliver(request, outcome)
        await self.poll()


@in_loop
async def test_a_commit_names_topic_and_cluster_and_whoever_asked_gets_each_partitions_outcome(dialogue):
    stage = Stage(dialogue)
    done = stage.commit({P0: 5, P1: 7}, "my note")
    assert stage.wakes == 1
    await stage.poll()
    assert stage.out() == {P0: 5, P1: 7}
    assert stage.metadata_out() == [("my note", OLD, "c-1", "")] * 2
    ((request, _),) = stage.sent
    assert (request.body.member_id, request.body.generation_id_or_member_epoch) == ("m-1", 1)
    stage.member.now += 0.25
    await stage.answered(answer({P0: 0, P1: 29}))
    results = done.result()
    assert results[P0] is None
    assert isinstance(results[P1], TopicAuthorizationFailedError)
    assert [seconds for seconds, _ in stage.took] == [0.25], "what the commit's latency is measured by"


@in_loop
async def test_an_offset_that_names_its_topic_already_keeps_that_name(dialogue):
    """A reader's position knows better of which topic it is than metadata of this moment."""
    stage = Stage(dialogue)
    done = stage.commit({P0: 5}, pack("", NEW))
    await stage.poll()
    assert done.done(), "metadata says that the topic is another one"
    assert stage.sent == []
    stage.ids.clear()  # brokers without ids
    stage.commit({P0: 5}, pack("", NEW))
    await stage.poll()
    assert stage.metadata_out()[0].topic_id == NEW


@in_loop
async def test_the_topic_is_the_one_that_was_assigned_though_metadata_has_another_by_now(dialogue):
    """Between new metadata and its handing on by the coordinator: the offset is of what was read."""
    stage = Stage(dialogue)
    stage.ids["t"] = NEW
    done = stage.commit({P0: 5})
    await stage.poll()
    assert stage.sent == []
    assert type(done.result()[P0]).__name__ == "TopicRecreatedError"


@pytest.mark.parametrize("on_data_loss", ["reset", "fail"])
@in_loop
async def test_what_was_processed_of_a_topic_is_not_committed_to_its_successor(dialogue, on_data_loss):
    stage = Stage(dialogue, on_data_loss=on_data_loss)
    waiting = stage.commit({P0: 500})
    stage.metadata_is(NEW)
    await stage.poll()
    assert stage.sent == []
    assert waiting.done()
    # From here on positions are of the new topic, unless data loss is fatal: then reading has failed, and they are the old ones.
    plain = stage.commit({P0: 501})
    await stage.poll()
    if on_data_loss == "fail":
        assert isinstance(plain.result()[P0], IllegalGenerationError)
        stage.commit({P0: 1}, pack("", NEW))  # sought by the user
        await stage.poll()
        assert stage.out() == {P0: 1}
    else:
        assert stage.out() == {P0: 501}


@in_loop
async def test_partitions_that_are_being_given_up_are_committed_and_those_that_are_gone_are_not(dialogue):
    stage = Stage(dialogue)
    stage.member.ownership.release_all()
    stage.commit({P0: 5})
    await stage.poll()
    assert stage.out() == {P0: 5}
    await stage.answered(answer({P0: 0}))
    stage.member.ownership.released(frozenset({P0}))
    done = stage.commit({P0: 6, P1: 7})
    await stage.poll()
    assert stage.out() == {P1: 7}
    await stage.answered(answer({P1: 0}))
    assert isinstance(done.result()[P0], IllegalGenerationError)
    assert done.result()[P1] is None


@in_loop
async def test_what_the_member_commits_of_what_it_owns_is_not_always_all_of_it_and_may_be_more(dialogue):
    """A retry partition is committed by whoever reads it, whatever the group assigns."""
    stage, other = Stage(dialogue), TopicPartition("t-retry", 0)
    stage.commits = lambda owned: (owned - {P1}) | ({other} if P0 in owned else set())
    done = stage.commit({P0: 5, P1: 7, other: 3})
    await stage.poll()
    assert stage.out() == {P0: 5, other: 3}
    await stage.answered(answer({P0: 0, other: 0}))
    assert {tp: type(error) for tp, error in done.result().items()} == {
        P0: type(None),
        other: type(None),
        P1: IllegalGenerationError,
    }
    stage.member.ownership.release_all()
    done = stage.commit({other: 4})
    await stage.poll()
    assert stage.out() == {other: 4}
    await stage.answered(answer({other: 0}))
    assert done.result() == {other: None}
    stage.member.ownership.released(frozenset({P0}))
    done = stage.commit({other: 5})
    await stage.poll()
    assert stage.sent == []
    assert isinstance(done.result()[other], IllegalGenerationError), "it went with t-0"


@in_loop
async def test_partitions_chosen_by_hand_are_committed_without_a_membership(dialogue):
    stage = Stage(dialogue, by_hand=True)
    done = stage.commit({TopicPartition("t", 9): 5})
    await stage.poll()
    ((request, _),) = stage.sent
    assert (request.body.member_id, request.body.generation_id_or_member_epoch) == ("", -1)
    await stage.answered(answer({TopicPartition("t", 9): 0}))
    assert done.result() == {TopicPartition("t", 9): None}


@in_loop
async def test_an_error_about_the_membership_reaches_the_member_and_fails_the_commit(dialogue):
    stage = Stage(dialogue)
    done = stage.commit({P0: 5})
    await stage.poll()
    before = stage.wakes
    await stage.answered(answer({P0: UnknownMemberIdError.code}))
    with pytest.raises(UnknownMemberIdError):
        done.result()
    assert stage.member.member.state is not MemberState.STABLE
    assert stage.wakes > before, "the member's next step comes at once"


@in_loop
async def test_a_fenced_member_fails_all_that_waits_and_all_that_comes(dialogue):
    stage = Stage(dialogue)
    waiting = stage.commit({P0: 5})
    stage.driver.fatal = FencedInstanceIdError("in use elsewhere")
    await stage.poll()
    later = stage.commit({P1: 7})
    await stage.poll()
    for commit in (waiting, later):
        with pytest.raises(FencedInstanceIdError):
            commit.result()
    assert stage.sent == []


@in_loop
async def test_a_commit_on_a_connection_that_is_lost_is_looked_up_before_anything_else_is_sent(dialogue):
    stage = Stage(dialogue)
    stage.commit({P0: 5})
    await stage.poll()
    stage.sent.clear()
    stage.sender.connection_lost()
    stage.commit({P1: 7})
    await stage.poll(10)
    ((request, _),) = stage.sent
    assert request.api is GroupApi.OFFSET_FETCH


@in_loop
async def test_a_commit_that_nobody_waits_for_any_more_holds_nothing_up(dialogue):
    stage = Stage(dialogue)
    given_up = stage.commit({P0: 5})
    await stage.poll()
    given_up.cancel()
    other = stage.commit({P1: 7})
    await stage.answered(answer({P0: 0}))
    assert stage.out() == {P1: 7}
    await stage.answered(answer({P1: 0}))
    assert other.result() == {P1: None}


@in_loop
async def test_an_offset_that_no_request_can_carry_is_refused_at_once_and_leaves_nothing(dialogue):
    stage = Stage(dialogue)
    with pytest.raises(UsageError, match="can't commit offset -1 of t-0"):
        stage.commit({P0: -1})
    await stage.poll()
    assert stage.sent == []


@pytest.mark.parametrize(
    "reason", [None, FencedInstanceIdError("in use elsewhere")], ids=["closed", "failed"]
)
@in_loop
async def test_the_end_answers_everybody(dialogue, reason):
    stage = Stage(dialogue)
    sent = stage.commit({P0: 5})
    await stage.poll()
    waiting, done = stage.commit({P1: 7}), stage.commit({P1: 8})
    done.cancel()
    stage.sender.end(reason)
    for commit in (sent, waiting):
        with pytest.raises(KafkaTimeoutError if reason is None else FencedInstanceIdError):
            commit.result()


def test_a_commit_that_nobody_looks_at_is_logged_where_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    offsets = {P0: OffsetAndMetadata(5, "", 3), P1: OffsetAndMetadata(7, "", 3)}
    with caplog.at_level(logging.WARNING):
        default_offset_commit_callback(offsets, {P0: None, P1: None})
        assert caplog.messages == []
        default_offset_commit_callback(offsets, {P0: None, P1: UnknownMemberIdError()})
        default_offset_commit_callback(offsets, KafkaTimeoutError("too late"))
    first, second = caplog.messages
    assert first.startswith("commit of t-1 failed: ")
    assert second == "commit of 2 partitions failed: " + str(KafkaTimeoutError("too late"))
