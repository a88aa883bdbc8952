"""The checks of simulated groups find each anomaly that is planted, and take nothing else for one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from simulation.group_checks import ArrivedCommit, GroupChecks, Place
from simulation.world import Simulation

from kafka_actors.types import TopicPartition

TP = TopicPartition("t", 0)


class Scene:
    """A topic with ten records, and the checks of a group."""

    def __init__(self, world: Any) -> None:
        self.kafka = world.kafka(brokers=1, topics={"t": 1})
        self.checks = GroupChecks(self.kafka, world.network, "g")
        self.written = 0
        self.write(10)

    def write(self, count: int) -> None:
        for n in range(count):  # a batch each: logs are cut by whole batches
            self.kafka.produce("t", [b"v%d" % (self.written + n)])
        self.written += count
        self.checks.index(TP)

    def truncate(self, offset: int) -> None:
        self.checks.index(TP)
        self.kafka.truncate(*TP, offset)
        self.checks.truncated(TP, self.kafka.end_offsets("t")[TP])

    def give(self, client: str, first: int, last: int) -> None:
        """A client is given the records that are there from one offset up to another."""
        records = [(r.offset, r.value) for r in self.checks.visible(TP) if first <= r.offset < last]
        self.checks.delivered(client, TP, records)

    def finish(self, offset: int) -> None:
        """A client has read and finished all records in front of an offset."""
        self.give("m1", 0, offset)
        log = self.checks.log_of(TP)
        assert log is not None
        self.checks.finished(Place(log, offset))

    def commit(self, before: Any, offset: int, *, late: bool = False) -> Any:
        """A commit of the client m1 takes the place of another, None for the first. late: its connection was closed when it arrived."""
        now = SimpleNamespace(offset=offset, metadata="")
        call: Any = SimpleNamespace(client_id="m1")
        arrived = ArrivedCommit(call, late, False, {})
        self.checks._committed(arrived, TP, before, now)
        return now

    def unseen(self) -> list[bytes]:
        return self.checks.unseen(TP)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Simulation(seed=1) as world:
        yield Scene(world)


def test_records_that_nobody_was_given_are_unseen(scene: Scene) -> None:
    assert len(scene.unseen()) == 10
    scene.give("m1", 0, 7)
    assert scene.unseen() == [b"v7", b"v8", b"v9"]
    scene.give("m1", 7, 10)
    assert scene.unseen() == []
    assert scene.checks.failures == []


def test_a_gap_and_a_step_back_are_found(scene: Scene) -> None:
    scene.give("m1", 0, 3)
    scene.give("m1", 5, 7)
    (found,) = scene.checks.failures
    assert found.startswith("m1 was given TopicPartition(topic='t', partition=0) from 5: it had read to 3")
    scene.give("m1", 4, 7)
    assert len(scene.checks.failures) == 2


def test_what_a_users_seek_passes_over_is_expected_only_where_the_log_was_cut_in_front_of_it(
    scene: Scene,
) -> None:
    """A position that a user has moved to has no leader epoch: that records in front of it are others by now, nobody notices."""
    scene.give("m1", 0, 10)
    scene.checks.sought("m1", TP, 8)
    scene.truncate(4)
    scene.write(8)  # v10 to v17, at 4 to 11
    scene.give("m1", 8, 12)
    assert scene.unseen() == [], "4 to 7 are passed over"
    scene.truncate(2)
    scene.write(4)
    assert len(scene.unseen()) == 4, "it has read since: its position has an epoch"


def test_a_seek_by_records_of_the_log_before_passes_over_what_is_new(scene: Scene) -> None:
    scene.give("m1", 0, 10)
    scene.truncate(4)
    scene.write(8)
    scene.checks.sought("m1", TP, 9)
    scene.give("m1", 9, 12)
    assert scene.unseen() == []


def test_a_seek_by_records_that_were_fetched_before_the_cut_passes_over_what_is_new(scene: Scene) -> None:
    fetched = [(r.offset, r.value) for r in scene.checks.visible(TP)]
    scene.truncate(4)
    scene.write(8)
    scene.checks.delivered("m1", TP, fetched)
    scene.checks.sought("m1", TP, 9)
    scene.give("m1", 9, 12)
    assert scene.unseen() == []


def test_without_a_seek_records_of_a_log_that_was_cut_have_to_be_read(scene: Scene) -> None:
    scene.give("m1", 0, 10)
    scene.truncate(4)
    scene.write(8)
    scene.give("m1", 10, 12)
    assert scene.unseen() == [b"v%d" % n for n in range(10, 16)]


def test_a_seek_back_excuses_nothing_that_was_written_behind_it(scene: Scene) -> None:
    scene.give("m1", 0, 10)
    scene.checks.sought("m1", TP, 3)
    scene.truncate(6)
    scene.write(4)
    assert len(scene.unseen()) == 4


def test_a_commit_that_falls_is_found(scene: Scene) -> None:
    scene.finish(10)
    third = scene.commit(scene.commit(None, 2), 3)
    assert scene.checks.failures == []
    scene.commit(third, 2)
    (found,) = scene.checks.failures
    assert found.startswith("m1 committed TopicPartition(topic='t', partition=0) 2 after 3")


def test_a_commit_may_fall_behind_one_that_its_client_had_given_up(scene: Scene) -> None:
    """The client has asked before it arrived what is committed, and begun again from there."""
    scene.finish(10)
    late = scene.commit(scene.commit(None, 2), 3, late=True)
    again = scene.commit(late, 2)
    assert scene.checks.failures == []
    scene.commit(again, 1)
    assert len(scene.checks.failures) == 1
