"""The checks of simulated groups find each anomaly that is planted, and take nothing else for one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.fake_members import RawMember, stable_group
from fakes.fake_wire import Wire
from simulation.group_checks import REQUEST_TIMEOUT_S, ArrivedCommit, GroupChecks, Place
from simulation.world import Simulation

from kafka_actors.group.commit_metadata import pack
from kafka_actors.testing.fake_kafka.machines.group_offsets import CommittedOffset
from kafka_actors.types import TopicPartition

TP = TopicPartition("t", 0)


class Scene:
    """A topic with ten records, and the checks of a group."""

    def __init__(self, world: Any) -> None:
        self.kafka = world.kafka(brokers=1, topics={"t": 1})
        self.checks = GroupChecks(self.kafka, world.network, "g")
        self.cluster = world.network.cluster
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

    def commit(
        self,
        before: Any,
        offset: int,
        *,
        late: bool = False,
        overdue: bool = False,
        client: str = "m1",
        topic_id: bytes | None = None,
    ) -> Any:
        """A commit of a client takes the place of another, None for the first. late: its connection was closed when it arrived. overdue: its
        client looked for it before."""
        now = CommittedOffset(offset, -1, pack("", topic_id), 0)
        self.cluster.offsets._offsets.put("g", (TP.topic, TP.partition), now)
        call: Any = SimpleNamespace(client_id=client)
        arrived = ArrivedCommit(call, late, overdue, {})
        self.checks._committed(arrived, TP, before, now)
        return now

    def unseen(self) -> list[bytes]:
        return self.checks.unseen(TP)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Simulation(seed=1) as world:
        yield Scene(world)


@pytest.mark.parametrize("comes_again", [False, True])
def test_two_owners_of_a_partition_are_found_also_where_one_is_a_static_member_that_came_again(
    comes_again: bool,
) -> None:
    wire = Wire(topics={"t": 1})
    lives = {"m1": "m1.1", "m2": "m2.1"}
    stable_group(wire, *(RawMember(wire, client, instance=name) for name, client in lives.items()))
    if comes_again:  # within its session
        lives["m1"] = "m1.2"
        RawMember(wire, "m1.2", instance="m1").join()
    network: Any = SimpleNamespace(cluster=wire.cluster, on_turn=[], links={})
    checks = GroupChecks(SimpleNamespace(on=lambda *_, **__: None), network, "g")
    members = [SimpleNamespace(running=True, name=n, client=c, assignment={TP}) for n, c in lives.items()]
    checks.owners(members[:1])
    assert checks.failures == []
    checks.owners(members)
    assert checks.failures


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


# ---------------------------------------------------------------- a commit that comes when its client has looked for it (seed 107967)


@pytest.mark.parametrize("cut_at", [None, 9], ids=["whole", "cut"])
def test_what_a_commit_undoes_that_came_too_late_counts_as_committed(
    scene: Scene, cut_at: int | None
) -> None:
    """Also in a log that was cut: nothing is to be read, and the next commit of its reader puts it right."""
    if cut_at is not None:
        scene.truncate(cut_at)
    scene.finish(8)
    eighth = scene.commit(scene.commit(None, 3), 8)
    scene.commit(eighth, 3, late=True, overdue=True)
    assert scene.checks.committed(TP) == 8
    assert scene.checks.failures == []


@pytest.mark.parametrize("overdue", [True, False])
def test_so_does_what_one_undoes_that_is_of_the_topic_before(scene: Scene, overdue: bool) -> None:
    log = scene.checks.log_of(TP)
    assert log is not None
    scene.kafka.recreate_topic("t")
    scene.write(8)
    scene.finish(8)
    eighth = scene.commit(None, 8)
    scene.commit(eighth, 8, late=True, overdue=overdue, topic_id=log[0])
    assert scene.checks.committed(TP) == (8 if overdue else 0)
    assert scene.checks.failures == []


@pytest.mark.parametrize("cut_at", [None, 9], ids=["whole", "cut"])
def test_a_commit_that_undoes_another_and_came_in_time_does_not_count_for_more(
    scene: Scene, cut_at: int | None
) -> None:
    if cut_at is not None:
        scene.truncate(cut_at)
    scene.finish(8)
    eighth = scene.commit(scene.commit(None, 3), 8)
    scene.commit(eighth, 3)
    assert scene.checks.committed(TP) == 3, "the group has to go on: it is committed to 3 of 10"
    assert len(scene.checks.failures) == (cut_at is None)


def test_what_was_undone_counts_no_further_than_the_log_is_cut_nor_longer_than_until_it_is_put_right(
    scene: Scene,
) -> None:
    scene.finish(8)
    undone = scene.commit(scene.commit(None, 8), 3, late=True, overdue=True)
    scene.truncate(5)
    assert scene.checks.committed(TP) == 5, "what is written behind it has to be committed"
    right = scene.commit(undone, 5)
    scene.commit(right, 4)
    assert scene.checks.committed(TP) == 4


# ---------------------------------------------------------------- where a user has moved its position (seed 100212)


def test_where_its_user_has_moved_the_position_a_client_may_commit_though_nothing_was_processed(
    scene: Scene,
) -> None:
    scene.checks.sought("m1", TP, 6)
    scene.commit(None, 6)
    assert scene.checks.failures == []


@pytest.mark.parametrize(("client", "offset"), [("m1", 7), ("m2", 6)], ids=["beyond", "of another one"])
def test_a_seek_excuses_no_other_offset_and_no_other_client(scene: Scene, client: str, offset: int) -> None:
    scene.checks.sought("m1", TP, 6)
    scene.commit(None, offset, client=client)
    (found,) = scene.checks.failures
    assert "only 0 was processed" in found


@pytest.mark.parametrize(
    ("behind_s", "overdue", "failures"),
    [(REQUEST_TIMEOUT_S, False, 0), (REQUEST_TIMEOUT_S + 0.1, False, 1), (60.0, True, 0)],
    ids=["on its way", "anew", "late"],
)
def test_a_seek_excuses_a_commit_until_the_partition_is_begun_anew(
    scene: Scene, behind_s: float, overdue: bool, failures: int
) -> None:
    """From then on the position is the committed offset; only what was sent before may still come."""
    scene.checks.sought("m1", TP, 6)
    scene.cluster.state.now += 100.0
    scene.checks.assigned("m1", [TP])
    scene.cluster.state.now += behind_s
    scene.commit(None, 6, overdue=overdue)
    assert len(scene.checks.failures) == failures
