"""The queue of commits, step by step: one in flight, merged, retried, resolved, refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.errors import (
    ConnectionFailedError,
    DisconnectedError,
    EncodeError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaTimeoutError,
    TopicRecreatedError,
    UnknownMemberIdError,
    UsageError,
)
from kafka_actors.group.commit_metadata import pack
from kafka_actors.group.machines.commits import CommitQueue, GenerationRefusal
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.machines.error_actions import ErrorAction, GroupApi
from kafka_actors.group.machines.member_events import Generation, GroupChannel, GroupRequest
from kafka_actors.group.machines.pending_commits import CommitEligibility, MembershipNews, PendingCommit
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
G1, G2 = Generation(1, "m", "range"), Generation(2, "m", "range")


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", 3)


class Script:
    """A queue with what its member may commit, stepped by hand."""

    def __init__(self, **eligibility: Any) -> None:
        self.queue = CommitQueue(GroupConfig("g", group_instance_id="i"), rand=lambda: 0.5)
        self.eligibility = CommitEligibility(
            **(
                {"connected": True, "may_commit": True, "generation": G1, "owned": frozenset({A, B})}
                | eligibility
            )
        )
        self.now = 0.0
        self.request: Any = None
        self.done: list[PendingCommit] = []
        self.notices: list[MembershipNews] = []
        self.wake: float | None = None

    def be(self, **changes: Any) -> None:
        fields = {name: getattr(self.eligibility, name) for name in CommitEligibility.__dataclass_fields__}
        self.eligibility = CommitEligibility(**(fields | changes))

    def submit(self, offsets: dict[TopicPartition, int], timeout: float = 60.0) -> PendingCommit:
        return self.queue.submit({tp: at(o) for tp, o in offsets.items()}, self.now, timeout)

    def poll(self, seconds: float = 0.0) -> dict[TopicPartition, int] | str | None:
        """What goes out: the offsets of a commit, "resolve" for an OffsetFetch, None for nothing."""
        self.now += seconds
        self.queue.eligibility = self.eligibility
        ready = self.queue.poll(self.now)
        self.done += [action for action in ready.actions if isinstance(action, PendingCommit)]
        self.notices += [action for action in ready.actions if isinstance(action, MembershipNews)]
        self.wake = ready.next_wake
        requests = [action for action in ready.actions if isinstance(action, GroupRequest)]
        if not requests:
            return None
        assert self.request is None, "two in flight"
        (self.request,) = requests
        if self.request.api is GroupApi.OFFSET_FETCH:
            return "resolve"
        return {
            TopicPartition(t.name, p.partition_index): p.committed_offset
            for t in self.request.body.topics
            for p in t.partitions
        }

    def answer(self, codes: dict[TopicPartition, int] | Exception) -> None:
        if isinstance(codes, Exception):
            return self.hand_over(codes)
        topic = OffsetCommitResponseTopic(
            name="t",
            partitions=[
                OffsetCommitResponsePartition(partition_index=tp.partition, error_code=c)
                for tp, c in codes.items()
            ],
        )
        self.hand_over(OffsetCommitResponse(topics=[topic]))

    def found(self, offsets: dict[TopicPartition, int], code: int = 0) -> None:
        partitions = [
            OffsetFetchResponsePartitions(partition_index=tp.partition, committed_offset=o, metadata="")
            for tp, o in offsets.items()
        ]
        group = OffsetFetchResponseGroup(
            group_id="g", error_code=code, topics=[OffsetFetchResponseTopics(name="t", partitions=partitions)]
        )
        self.hand_over(OffsetFetchResponse(groups=[group]))

    def hand_over(self, outcome: object) -> None:
        request, self.request = self.request, None
        self.queue.eligibility = self.eligibility
        self.queue.on_response(request, outcome, self.now)


def test_commit_carries_the_generation_member_and_leader_epoch():
    s = Script()
    ticket = s.submit({A: 5})
    assert s.poll() == {A: 5}
    body = s.request.body
    assert (body.generation_id_or_member_epoch, body.member_id, body.group_instance_id) == (1, "m", "i")
    assert body.topics[0].partitions[0].committed_leader_epoch == 3
    s.answer({A: 0})
    s.poll()
    assert s.done == [ticket]
    assert (ticket.results, ticket.refused) == ({A: None}, None)
    assert s.queue.idle
    assert s.wake is None


def test_one_in_flight_and_what_waits_is_merged_to_the_latest():
    s = Script()
    first = s.submit({A: 5})
    s.poll()
    second, third = s.submit({A: 6, B: 1}), s.submit({A: 7})
    assert s.poll() is None
    s.answer({A: 0})
    assert s.poll() == {A: 7, B: 1}
    assert s.done == [first]
    s.answer({A: 0, B: 0})
    s.poll()
    assert set(map(id, s.done[1:])) == {id(second), id(third)}
    assert second.results == {A: None, B: None}


def test_every_partition_of_an_answer_is_read():
    s = Script()
    ticket = s.submit({A: 5, B: 6})
    s.poll()
    s.answer({A: 0, B: 29})
    s.poll()
    assert ticket.results[A] is None
    assert (ticket.results[B].code, ticket.results[B].topic, ticket.results[B].partition) == (29, "t", 1)
    assert ticket.refused is None
    assert s.notices == []


def test_partition_that_the_answer_leaves_out_is_asked_again():
    s = Script()
    s.submit({A: 5, B: 6})
    s.poll()
    s.answer({A: 0})
    assert s.poll(1.0) == {B: 6}


OUTCOMES = {
    # code: (what happens to the commit, what the membership is told)
    3: ("retried", None),
    7: ("retried", ErrorAction.REDISCOVER),
    12: ("partition", None),
    14: ("retried", None),
    15: ("retried", ErrorAction.REDISCOVER),
    16: ("retried", ErrorAction.REDISCOVER),
    17: ("partition", None),
    22: ("refused", ErrorAction.RESET_GENERATION),
    24: ("refused", ErrorAction.FATAL),
    25: ("refused", ErrorAction.RESET_MEMBER),
    27: ("held", ErrorAction.REJOIN),
    28: ("partition", None),
    29: ("partition", None),
    30: ("refused", ErrorAction.FATAL),
    69: ("partition", None),
    82: ("refused", ErrorAction.FATAL),
    89: ("retried", None),
    110: ("refused", ErrorAction.RESET_MEMBER),
    113: ("refused", ErrorAction.RESET_GENERATION),
    -1: ("partition", None),
}


@pytest.mark.parametrize("code", OUTCOMES)
def test_every_code_has_its_outcome(code):
    outcome, told = OUTCOMES[code]
    s = Script()
    ticket = s.submit({A: 5})
    s.poll()
    s.answer({A: code})
    again = s.poll(2.0)
    assert [n.verdict for n in s.notices] == ([] if told is None else [told])
    if outcome == "retried":
        assert again == {A: 5}
        assert not ticket.done
    elif outcome == "held":
        assert again is None
        assert not ticket.done
        s.be(generation=G2)
        assert s.poll() == {A: 5}
        assert s.request.body.generation_id_or_member_epoch == 2
    else:
        assert again is None
        assert ticket.results[A].code == code
        assert (ticket.refused is not None) == (outcome == "refused")


@pytest.mark.parametrize(
    ("code", "change"),
    [(code, {"generation": G2}) for code in (22, 25, 82, 110, 113)]
    + [(code, {"settled": False}) for code in (22, 113)],
)
def test_an_error_about_a_generation_that_passed_only_means_again(code, change):
    s = Script()
    ticket = s.submit({A: 5})
    s.poll()
    s.be(**change)
    s.answer({A: code})
    s.be(generation=G2, settled=True)
    assert s.poll(1.0) == {A: 5}
    assert s.request.generation == G2
    assert not ticket.done


def test_nothing_is_sent_while_the_group_would_not_take_it():
    s = Script(may_commit=False)
    ticket = s.submit({A: 5}, timeout=10.0)
    assert s.poll(9.0) is None
    s.be(may_commit=True, generation=G2)
    assert s.poll() == {A: 5}
    s.answer({A: 0})
    s.poll()
    assert ticket.results == {A: None}


@pytest.mark.parametrize("error", [DisconnectedError("gone"), KafkaTimeoutError("silent")])
def test_unknown_outcome_is_resolved_before_anything_else_is_committed(error):
    s = Script()
    first = s.submit({A: 5, B: 6})
    s.poll()
    s.answer(error)
    s.submit({A: 9})
    s.be(connected=False)
    assert s.poll(1.0) is None
    assert [n.verdict for n in s.notices] == [ErrorAction.REDISCOVER]
    s.be(connected=True)
    assert s.poll() == "resolve"
    s.found({A: 5, B: 2})
    assert s.poll() == {A: 9, B: 6}
    assert not first.done
    s.answer({A: 0, B: 0})
    s.poll()
    assert first.results == {A: None, B: None}


def test_resolving_is_retried_and_ends_the_commit_only_when_it_must():
    s = Script()
    ticket = s.submit({A: 5})
    s.poll()
    s.answer(KafkaTimeoutError("silent"))
    assert s.poll(1.0) == "resolve"
    s.found({}, code=14)
    assert s.poll(1.0) == "resolve"
    s.answer(DisconnectedError("gone"))
    assert s.poll(1.5) == "resolve"
    s.found({}, code=30)
    s.poll()
    assert ticket.refused.code == 30


@pytest.mark.parametrize("error", [ConnectionFailedError("refused")])
def test_commit_that_was_never_sent_needs_no_resolving(error):
    s = Script()
    s.submit({A: 5})
    s.poll()
    s.answer(error)
    assert s.poll(1.0) == {A: 5}


def test_commit_that_no_request_can_carry_fails_alone():
    s = Script()
    ticket = s.submit({A: 5})
    s.poll()
    s.answer(EncodeError("too long"))
    s.poll()
    assert isinstance(ticket.refused, EncodeError)
    assert s.notices == []


def test_what_is_not_owned_is_never_sent():
    s = Script(owned=frozenset({B}))
    ticket = s.submit({A: 5, B: 6})
    assert s.poll() == {B: 6}
    assert isinstance(ticket.results[A], IllegalGenerationError)
    s.answer({B: 0})
    s.poll()
    assert ticket.results[B] is None


@pytest.mark.parametrize("meanwhile", [{}, {"settled": True, "may_commit": False}])
def test_what_was_held_while_joining_anew_goes_out_though_the_generation_stays(meanwhile):
    s = Script(settled=False)
    ticket = s.submit({A: 5})
    s.poll()
    s.be(**meanwhile)
    s.answer({A: 27})
    assert s.poll(2.0) is None
    s.be(settled=True, may_commit=False)  # the group waits for SyncGroup
    assert s.poll(2.0) is None
    s.be(may_commit=True)
    assert s.poll() == {A: 5}
    s.answer({A: 0})
    s.poll()
    assert ticket.results[A] is None


@pytest.mark.parametrize("how", [14, 27, KafkaTimeoutError("silent")])
def test_what_is_lost_while_in_flight_is_not_sent_again(how):
    s = Script()
    ticket = s.submit({A: 5})
    s.poll()
    s.be(owned=frozenset({B}))
    s.poll()
    s.be(owned=frozenset({A, B}), generation=G2)  # and comes back: the offset in hand is an old one
    s.answer({A: how} if isinstance(how, int) else how)
    out = s.poll(1.0)
    if out == "resolve":
        s.found({A: 1})
        out = s.poll(1.0)
    assert out is None
    assert isinstance(ticket.results[A], IllegalGenerationError)


def test_every_commit_ends_by_its_deadline():
    s = Script(connected=False)
    ticket = s.submit({A: 5}, timeout=3.0)
    s.poll()
    assert s.wake == 3.0
    s.poll(3.0)
    assert isinstance(ticket.refused, KafkaTimeoutError)
    assert s.queue.idle
    s.be(connected=True)
    assert s.poll() is None


def test_commit_that_is_refused_until_its_deadline_says_with_what():
    s = Script()
    ticket = s.submit({A: 5, B: 6}, timeout=3.0)
    s.poll()
    s.answer({A: 3, B: 3})
    s.poll(3.0)
    text = str(ticket.refused)
    assert text.startswith("t-0 and 1 more could not be committed in time: UNKNOWN_TOPIC_OR_PARTITION (3)")
    assert not text.endswith("is unknown")


def test_commit_without_an_answer_says_that_nothing_is_known():
    s = Script()
    ticket = s.submit({A: 5}, timeout=3.0)
    s.poll()
    s.poll(3.0)
    assert str(ticket.refused) == "t-0 could not be committed in time; whether it was done is unknown"


def test_commit_nobody_waits_for_any_more_is_still_resolved():
    s = Script()
    ticket = s.submit({A: 5}, timeout=3.0)
    s.poll()
    s.poll(3.0)
    assert ticket.done
    s.submit({A: 9})
    assert s.poll() is None
    s.answer(DisconnectedError("gone"))
    assert s.poll(1.0) == "resolve"
    s.found({A: 1})
    assert s.poll() == {A: 9}


def test_request_without_an_answer_is_given_up_by_the_machine_itself():
    s = Script()
    s.submit({A: 5})
    s.poll()
    s.poll(s.wake - s.now)
    assert [n.verdict for n in s.notices] == [ErrorAction.REDISCOVER]


def test_end_of_the_membership_ends_every_commit():
    s = Script()
    first = s.submit({A: 5})
    s.poll()
    second = s.submit({B: 6})
    s.be(ended=FencedInstanceIdError("fenced"), owned=frozenset())
    s.poll()
    assert first.done
    assert second.done
    assert isinstance(first.refused, FencedInstanceIdError)
    assert s.poll(100.0) is None


def test_partitions_assigned_by_hand_are_committed_without_a_membership():
    s = Script(generation=Generation(), owned=None)
    ticket = s.submit({A: 5})
    s.poll()
    body = s.request.body
    assert (body.generation_id_or_member_epoch, body.member_id, body.group_instance_id) == (-1, "", None)
    s.answer({A: 25})  # the group has members, who alone may commit
    s.poll()
    assert isinstance(ticket.refused, UnknownMemberIdError)
    assert s.notices == []


def test_offsets_that_can_not_be_are_refused_at_once():
    s = Script()
    with pytest.raises(UsageError, match="-1 of t-0"):
        s.submit({B: 1, A: -1})
    with pytest.raises(UsageError, match="metadata"):
        s.queue.submit({A: OffsetAndMetadata(1, "x" * 40_000)}, 0.0, 1.0)
    assert s.poll() is None
    assert s.submit({}).done


@pytest.mark.parametrize("under_way", [False, True])
def test_commits_of_a_topic_that_is_gone_are_dropped(under_way):
    s = Script()
    ticket = s.submit({A: 500})
    if under_way:
        s.poll()
    s.queue.drop([A, B])
    if under_way:
        s.answer({A: 14})
    assert s.poll(1.0) is None
    assert isinstance(ticket.results[A], IllegalGenerationError)


OLD, NEW = b"o" * 16, b"n" * 16


def named(offset: int, topic_id: bytes | None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, pack("", topic_id), 3)


def test_an_offset_of_a_topic_that_was_made_anew_is_never_sent():
    s = Script(topic_id=lambda topic: NEW)
    ticket = s.queue.submit({A: named(5, OLD), B: named(6, NEW)}, s.now, 60.0)
    assert s.poll() == {B: 6}
    s.answer({B: 0})
    s.poll()
    assert s.done == [ticket]
    assert isinstance(ticket.results[A], TopicRecreatedError)
    assert ticket.results[B] is None
    assert ticket.refused is None


def test_an_offset_whose_topic_is_made_anew_while_it_is_in_flight_is_not_sent_again():
    s = Script(topic_id=lambda topic: OLD)
    ticket = s.queue.submit({A: named(5, OLD)}, s.now, 60.0)
    assert s.poll() == {A: 5}
    s.be(topic_id=lambda topic: NEW)
    s.poll()
    s.answer({A: 14})
    assert s.poll(10.0) is None
    assert s.done == [ticket]
    assert ticket.results[A] is not None


@pytest.mark.parametrize(("known", "answered"), [(None, OLD), (NEW, None)])
def test_an_id_that_is_not_known_stops_no_commit(known, answered):
    s = Script(topic_id=lambda topic: known)
    s.queue.submit({A: named(5, answered)}, s.now, 60.0)
    assert s.poll() == {A: 5}


def test_a_broker_that_takes_less_metadata_gets_the_users_own_alone():
    s = Script(topic_id=lambda topic: NEW)
    ticket = s.queue.submit({A: OffsetAndMetadata(5, pack("note", NEW))}, s.now, 60.0)
    assert s.poll() == {A: 5}
    s.answer({A: 12})
    assert s.poll() == {A: 5}
    assert s.request.body.topics[0].partitions[0].committed_metadata == "note"
    s.answer({A: 12})
    s.poll()
    assert s.done == [ticket]
    assert ticket.results[A].code == 12


# ---------------------------------------------------------------- commits of more than a broker writes at once


class LogOfOffsets:
    """A coordinator's log, which takes a commit of at most `most` bytes as one batch, as Kafka does, and says `code` to a larger one."""

    def __init__(self, s: Script, most: int, code: int = 28) -> None:
        self.s, self.most, self.code = s, most, code
        self.committed: dict[TopicPartition, int] = {}
        self.sizes: list[int] = []
        self.went_back: list[TopicPartition] = []

    def write(self, request: Any) -> int:
        """Writes the batch or refuses it; returns the code for each of its partitions."""
        sent = [(t.name, p) for t in request.body.topics for p in t.partitions]
        self.sizes.append(sum(90 + len(name) + len(p.committed_metadata) for name, p in sent))
        if self.sizes[-1] > self.most:
            return self.code
        for name, p in sent:
            tp = TopicPartition(name, p.partition_index)
            if p.committed_offset < self.committed.get(tp, 0):
                self.went_back.append(tp)
            self.committed[tp] = p.committed_offset
        return 0

    def take(self) -> None:
        """Answers the request in flight."""
        asked = {
            TopicPartition("t", p.partition_index) for t in self.s.request.body.topics for p in t.partitions
        }
        self.s.answer(dict.fromkeys(asked, self.write(self.s.request)))

    def look_up(self) -> None:
        """Answers the question what is committed."""
        asked = [n for t in self.s.request.body.groups[0].topics for n in t.partition_indexes]
        self.s.found({(tp := TopicPartition("t", n)): self.committed.get(tp, -1) for n in asked})


def all_of(count: int, text: str = "m" * 87) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("t", n): OffsetAndMetadata(n + 1, text) for n in range(count)}


def commit_all(
    count: int, most: int, code: int = 28, text: str = "m" * 87
) -> tuple[PendingCommit, LogOfOffsets]:
    s = Script(owned=all_of(count).keys())
    log = LogOfOffsets(s, most, code)
    ticket = s.queue.submit(all_of(count, text), s.now, 60.0)
    while s.poll() is not None and len(log.sizes) < 100:
        log.take()
    assert s.done == [ticket]
    assert s.notices == []
    return ticket, log


def test_a_commit_of_more_than_the_coordinator_writes_at_once_goes_in_several_requests():
    """By default it writes 1 MiB: some 6,000 partitions, of which none was ever committed."""
    ticket, log = commit_all(13_000, 1_048_588)
    assert set(ticket.results.values()) == {None}
    assert log.committed == {tp: offset.offset for tp, offset in all_of(13_000).items()}
    assert len(log.sizes) <= 6, "no more than it takes"


@pytest.mark.parametrize("code", [28, -1])
def test_what_is_too_large_for_a_coordinator_is_sent_again_in_halves_and_so_is_what_follows(code):
    ticket, log = commit_all(6_000, 100_000, code)
    assert set(ticket.results.values()) == {None}
    assert len(log.committed) == 6_000
    refused = [size for size in log.sizes if size > log.most]
    assert 1 <= len(refused) <= 4
    assert log.sizes[: len(refused)] == refused


@pytest.mark.parametrize("code", [28, -1])
def test_what_no_division_makes_small_enough_is_refused(code):
    """A broker says -1 for other reasons too, and must not be asked for each partition by itself."""
    ticket, log = commit_all(3_000, 0, code)
    assert {error.code for error in ticket.results.values()} == {code}
    assert ticket.refused is None
    assert len(log.sizes) < 80
    ticket, log = commit_all(2, 0, code, "m" * 30_000)
    assert {error.code for error in ticket.results.values()} == {code}
    assert len(log.sizes) == 3


def test_an_error_beside_partitions_that_were_committed_is_not_one_of_the_size():
    s = Script(owned=all_of(1_000).keys())
    ticket = s.queue.submit(all_of(1_000), s.now, 60.0)
    s.poll()
    s.answer(dict.fromkeys(all_of(1_000), 0) | {A: -1})
    assert s.poll(2.0) is None
    assert [tp for tp, error in ticket.results.items() if error is not None] == [A]


def test_what_waits_for_another_request_ends_by_the_deadline_with_the_rest():
    s = Script(owned=all_of(4_000).keys())
    log = LogOfOffsets(s, 1_048_588)
    ticket = s.queue.submit(all_of(4_000), s.now, 5.0)
    s.poll()
    log.take()
    sent = s.poll()
    s.poll(5.0)
    assert s.done == [ticket]
    assert ticket.refused is None, "most of it was committed"
    assert {tp for tp, error in ticket.results.items() if error is not None} == set(sent)
    assert "whether it was done is unknown" in str(ticket.results[max(sent)])


@given(st.data())
@settings(max_examples=60)
def test_whatever_a_coordinator_takes_at_once_the_last_offset_of_each_partition_is_committed_in_order(data):
    """With commits that come meanwhile, and answers that are lost before or after the coordinator has written."""
    count = data.draw(st.integers(1, 400))
    text = "m" * data.draw(st.sampled_from([0, 87, 3_000]))
    s = Script(owned=all_of(count).keys())
    log = LogOfOffsets(s, data.draw(st.integers(16 * 1024, 400_000)), data.draw(st.sampled_from([28, -1])))
    tickets, last = [], {}
    for offset in range(1, data.draw(st.integers(2, 12))):
        every = data.draw(st.integers(1, 3))
        some = [tp for tp in all_of(count) if offset == 1 or (tp.partition + offset) % every == 0]
        tickets.append(s.queue.submit({tp: OffsetAndMetadata(offset, text) for tp in some}, s.now, 600.0))
        last |= dict.fromkeys(some, offset)
        for _ in range(data.draw(st.integers(0, 3))):
            step(s, log, data.draw(st.sampled_from(["answered", "lost", "lost behind"])))
    for _ in range(400):
        if s.queue.idle:
            break
        step(s, log, "answered")
    s.poll()
    assert len(s.done) == len(tickets)
    assert all(set(ticket.results.values()) <= {None} for ticket in tickets)
    assert (log.committed, log.went_back) == (last, [])


def step(s: Script, log: LogOfOffsets, fate: str) -> None:
    """Goes on by a request, if one is due, that has this fate."""
    sent = s.poll(2.0)
    if sent is None:
        return
    if fate != "answered":
        if fate == "lost behind" and sent != "resolve":
            log.write(s.request)
        s.answer(DisconnectedError("gone"))
    elif sent == "resolve":
        log.look_up()
    else:
        log.take()


# ---------------------------------------------------------------- coordinators that are slow


def test_a_coordinator_that_is_slow_is_waited_for_longer_each_time_until_it_answers_as_usual():
    s = Script()
    s.submit({A: 5}, timeout=600.0)
    timeouts = []
    for _ in range(4):
        s.poll(2.0)
        timeouts.append(s.request.timeout)
        s.now += s.request.timeout
        s.answer(KafkaTimeoutError("silent"))
    s.poll(2.0)
    s.now += 25.0
    s.found({A: 5})
    for offset, took in ((6, 25.0), (7, 1.0), (8, 1.0)):
        s.submit({A: offset})
        s.poll(2.0)
        timeouts.append(s.request.timeout)
        s.now += took
        s.answer({A: 0})
    assert timeouts == [9.0, 18.0, 30.0, 30.0, 30.0, 30.0, 9.0]


@pytest.mark.parametrize(
    ("heard_at", "verdict"), [(20.0, ErrorAction.RETRY), (-math.inf, ErrorAction.REDISCOVER)]
)
def test_a_coordinator_that_acknowledges_heartbeats_is_not_lost_though_it_is_slow_to_say_what_was_committed(
    heard_at, verdict
):
    s = Script(heard_at=heard_at)
    s.submit({A: 5})
    s.poll()
    s.answer(KafkaTimeoutError("silent"))
    assert s.poll(10.0) == "resolve"
    assert s.request.channel is GroupChannel.OFFSET_FETCH
    s.now += s.request.timeout
    s.answer(KafkaTimeoutError("silent"))
    s.poll()
    assert [notice.verdict for notice in s.notices] == [ErrorAction.REDISCOVER, verdict]
    assert s.poll(10.0) == "resolve"


def test_an_answer_that_comes_after_the_request_was_given_up_settles_nothing():
    s = Script()
    commit = s.submit({A: 5})
    s.poll()
    first = s.request
    s.request = None
    assert s.poll(s.wake - s.now) == "resolve" or s.poll(1.0) == "resolve"
    late = [OffsetCommitResponsePartition(partition_index=0, error_code=0)]
    s.queue.on_response(
        first, OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=late)]), s.now
    )
    assert commit.results == {}
    s.found({A: 0})
    assert s.poll() == {A: 5}, "the broker says that it is not there"


def lost_and_looked_up(s: Script, sent: int, then: int) -> None:
    """A commit has no answer, is not there when it is looked up, and a later one is acknowledged."""
    s.submit({A: sent})
    s.poll()
    s.answer(DisconnectedError("gone"))
    assert s.poll(1.0) == "resolve"
    s.found({A: 1})
    assert s.poll() == {A: sent}
    s.answer({A: 0})
    s.submit({A: then})
    assert s.poll() == {A: then}
    s.answer({A: 0})
    assert s.poll() is None


def test_a_commit_that_lands_behind_later_ones_is_put_right():
    s = Script()
    lost_and_looked_up(s, 5, 9)
    assert s.queue.idle
    assert s.poll(s.wake - s.now) == "resolve", "once more, when nothing was unknown for a while"
    s.found({A: 5})
    assert s.poll() == {A: 9}
    s.answer({A: 14})
    assert s.poll(1.0) is None, "nobody waits for it"
    assert s.poll(s.wake - s.now) == "resolve"
    s.found({A: 5})
    assert s.poll() == {A: 9}
    s.answer({A: 0})
    assert s.poll() is None
    assert (s.wake, s.queue.idle) == (None, True)


def test_what_the_group_has_kept_is_looked_up_once_more_and_left_alone():
    s = Script()
    lost_and_looked_up(s, 5, 9)
    assert s.poll(s.wake - s.now) == "resolve"
    s.answer(DisconnectedError("gone"))
    assert s.poll(1.0) == "resolve"
    s.found({A: 9})
    assert s.poll() is None
    assert s.wake is None


def test_a_newer_commit_is_not_replaced_by_what_was_undone():
    s = Script()
    lost_and_looked_up(s, 5, 9)
    assert s.poll(s.wake - s.now) == "resolve"
    s.submit({A: 12})
    s.found({A: 5})
    assert s.poll() == {A: 12}


def looked_after() -> Script:
    """A commit in a topic with an id had no answer, and was acknowledged when it was sent again: the first try may land yet."""
    s = Script()
    s.queue.submit({A: OffsetAndMetadata(9, pack("", b"1" * 16), 3)}, s.now, 60.0)
    s.poll()
    s.answer(DisconnectedError("gone"))
    assert s.poll(1.0) == "resolve"
    s.found({A: 1})
    s.poll()
    s.answer({A: 0})
    s.poll()
    assert s.wake is not None
    return s


@pytest.mark.parametrize(
    "change",
    [{"generation": G2}, {"owned": frozenset({B})}, {"owned": None}],
    ids=["fenced", "gone", "by hand"],
)
def test_a_late_commit_that_is_fenced_or_not_ones_own_any_more_is_not_looked_for(change):
    s = looked_after()
    s.be(**change)
    assert s.poll(100.0) is None
    assert s.wake is None


def test_a_late_commit_is_looked_for_in_a_topic_that_was_made_anew_and_none_of_the_topic_before_is_sent_again():
    s = looked_after()
    s.be(topic_id=lambda _: b"2" * 16)
    assert s.poll(100.0) == "resolve"
    s.found({A: 9})
    assert s.poll() is None
    assert s.wake is None


# ---------------------------------------------------------------- the generation that the group refused

MEMBER = CommitEligibility(True, True, generation=G1, owned=frozenset({A, B}))


def test_a_refused_generation_is_held_back_until_the_member_has_another() -> None:
    refusal = GenerationRefusal()
    assert not refusal.holds_back(MEMBER)
    refusal.refused(MEMBER.generation, MEMBER)
    assert refusal.holds_back(MEMBER)
    assert refusal.holds_back(replace(MEMBER, settled=False)), "it joins, which has not ended"
    assert not refusal.holds_back(replace(MEMBER, generation=G2))


@pytest.mark.parametrize("member", [replace(MEMBER, settled=False), replace(MEMBER, may_commit=False)])
def test_a_member_that_was_still_joining_may_come_out_in_the_same_generation(
    member: CommitEligibility,
) -> None:
    """A JoinGroup that is repeated while the group waits for SyncGroup brings no new one."""
    refusal = GenerationRefusal()
    refusal.refused(member.generation, member)
    assert refusal.holds_back(replace(member, settled=False))
    assert not refusal.holds_back(MEMBER)


def test_a_request_that_goes_out_ends_the_refusal() -> None:
    refusal = GenerationRefusal()
    refusal.refused(MEMBER.generation, MEMBER)
    refusal.clear()
    assert not refusal.holds_back(MEMBER)
