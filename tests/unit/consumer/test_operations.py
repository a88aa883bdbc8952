"""Calls of a consumer for transactions: what they refuse, and where positions go back to."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from kafka_actors import Consumer
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.consumer.operations import ConsumerOperations
from kafka_actors.errors import ConfigError, IllegalGenerationError, UsageError
from kafka_actors.group.commit_metadata import ReadOffset
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))
MEMBER = ConsumerGroupMetadata("g", 4, "m-1", None)


class Session:
    """A session whose calls never wait: `committed` is what the group has, `sought` where positions were moved to."""

    def __init__(self, committed=(), begun=(), lost=(), membership=MEMBER, positions=(), **options):
        self.config = build(ConsumerConfig, {"group_id": "g", "enable_auto_commit": False, **options})
        self.attention = False
        self.sought = {}
        self._committed = dict(committed)
        self.core = SimpleNamespace(
            committed=lambda wanted, left_s: {tp: self._committed.get(tp) for tp in wanted},
            group_metadata=lambda group_id: membership,
            rebalances=SimpleNamespace(lost=frozenset(lost)),
            client=SimpleNamespace(
                snapshot=SimpleNamespace(topic_id=lambda topic: b"now", cluster_id="cluster")
            ),
        )
        self.reader = SimpleNamespace(
            begun=dict(begun),
            handed={A},
            sought=lambda partitions: None,
            position=self.position,
            positions=lambda partitions: dict(positions),
            topic_id=lambda tp: b"read",
        )
        self.fetcher = SimpleNamespace(seek=self.sought.__setitem__)

    def check_group(self):
        pass

    def connect(self, limit=None):
        yield from ()

    def position(self, tp):
        raise UsageError(f"{tp} is not assigned")

    def assignment(self):
        return frozenset([A, B, C])

    def some(self, partitions):
        return frozenset(partitions) or self.assignment()


def done(steps):
    """The result of a call, whose waits are answered with what they ask."""
    try:
        call = next(steps)
        while True:
            call = steps.send(call.work)
    except StopIteration as end:
        return end.value


def test_positions_go_back_to_what_is_committed_or_to_where_they_were_begun():
    session = Session(committed={A: OffsetAndMetadata(7)}, begun={A: 0, B: 3})
    done(ConsumerOperations(session).seek_to_committed((), None))
    assert session.sought == {A: 7, B: 3}  # of C nothing was handed out
    session.sought.clear()
    done(ConsumerOperations(session).seek_to_committed([B], None))
    assert session.sought == {B: 3}


def test_the_membership_goes_with_a_transactions_offsets():
    assert done(ConsumerOperations(Session()).group_metadata()) == MEMBER


def test_it_names_the_topics_that_were_read_and_those_of_their_names_now():
    positions = {A: OffsetAndMetadata(7, "", 3)}
    found = done(ConsumerOperations(Session(positions=positions)).group_metadata())
    assert found == MEMBER
    assert found.read == {A: ReadOffset(7, 3, b"read", b"now", "cluster")}
    assert pickle.loads(pickle.dumps(found)).read == found.read


def test_the_position_of_a_lost_partition_is_no_mistake_of_the_program():
    with pytest.raises(IllegalGenerationError, match="lost since the last poll"):
        done(ConsumerOperations(Session(lost=[A])).position(A, None))
    with pytest.raises(UsageError, match="not assigned"):
        done(ConsumerOperations(Session(lost=[A])).position(B, None))


def test_a_consumer_that_commits_by_itself_has_no_place_in_a_transaction():
    with pytest.raises(UsageError, match="group_metadata: enable_auto_commit is on"):
        done(ConsumerOperations(Session(enable_auto_commit=True)).group_metadata())
    with pytest.raises(ConfigError, match="group_id"):
        Consumer(enable_auto_commit=False).group_metadata()


def test_offsets_of_a_partition_that_was_lost_meanwhile_are_refused():
    with pytest.raises(IllegalGenerationError, match="lost since the last poll"):
        done(ConsumerOperations(Session(lost=[A])).group_metadata())
