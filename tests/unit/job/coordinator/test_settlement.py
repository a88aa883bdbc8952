"""Order in which partitions of a job that delivers exactly once become grantable: fence, stable offsets, grant."""

import assignors
from kafka_actors.job.coordinator.machines.placement import Placement, PlacementState
from kafka_actors.job.coordinator.machines.settlement import FenceProducer, FetchOffsets, Settlement
from kafka_actors.job.messages import HeldReport
from kafka_actors.job.transactions import ProducerGrant
from kafka_actors.types import ProducerIdentity, TopicPartition

DRAIN = 5.0
P0, P1, P2, P3 = (TopicPartition("t", n) for n in range(4))
EVERY = frozenset(PlacementState)


class Scene:
    """A placement with its settlement, polled by hand; fences and offsets are answered when the test says so."""

    def __init__(self, *workers, incarnation=1, complete=True):
        self.settlement = Settlement(incarnation)
        self.placement = Placement(incarnation, assignors.get("sticky"), DRAIN, self.settlement)
        self.now = 0.0
        self.fences, self.questions = [], []
        self._producers = 0
        self.settlement.left_over((), complete=complete)
        for worker in workers:
            self.comes(worker)

    def comes(self, worker):
        self.placement.set_worker(worker)
        self.placement.worker_ready(worker)

    def step(self, seconds=0.0):
        self.now += seconds
        for _ in range(2):
            self.placement.poll(self.now)
            for action in self.settlement.poll(self.now).actions:
                (self.fences if isinstance(action, FenceProducer) else self.questions).append(action)

    def fenced(self, *roles):
        """Answers the fences of these roles, of all without any."""
        answered = [fence for fence in self.fences if not roles or fence.role in roles]
        self.fences = [fence for fence in self.fences if fence not in answered]
        for fence in answered:
            self._producers += 1
            self.settlement.fenced(fence, ProducerIdentity(f"id-{fence.role}", 7, self._producers))
        self.step()

    def stable(self):
        """Answers all questions for offsets. Returns the partitions that were settled by that."""
        asked, self.questions = self.questions, []
        settled = [p for question in asked for p in self.settlement.offsets_known(question)]
        self.step()
        return settled

    def running(self, *partitions):
        """All is granted, and reported as held."""
        self.placement.assign(partitions)
        self.step()
        self.fenced()
        self.stable()
        for worker in self.placement.workers:
            self.reports(worker)

    def reports(self, worker, *, without=()):
        held = [
            HeldReport(s.partition, s.epoch)
            for s in self.placement.held(worker, EVERY)
            if s.partition not in without
        ]
        self.placement.reported(worker, self.placement.version(worker), held)
        self.step()

    def held(self, worker):
        return {s.partition for s in self.placement.held(worker, EVERY)}

    def session(self, worker):
        found = self.settlement.session_of(worker)
        return None if found is None else found.session


def test_a_first_assignment_waits_for_sessions_and_stable_offsets():
    scene = Scene("worker-0.1", "worker-1.1")
    scene.placement.assign([P0, P1])
    scene.step()
    assert sorted(fence.role for fence in scene.fences) == ["worker-0", "worker-1"]
    assert [question.partitions for question in scene.questions] == [(P0, P1)]
    assert scene.settlement.reason(P0) == "waits for stable offsets"
    assert scene.stable() == [P0, P1]
    assert scene.held("worker-0.1") | scene.held("worker-1.1") == set()  # nobody has a producer yet
    scene.fenced("worker-1")
    assert scene.held("worker-1.1") == {P1}
    scene.fenced("worker-0")
    assert scene.held("worker-0.1") == {P0}
    assert scene.settlement.session_of("worker-0.1").identity.transactional_id == "id-worker-0"


def test_partitions_of_a_dead_worker_wait_for_its_fence_and_then_for_their_offsets():
    scene = Scene("worker-0.1", "worker-1.1")
    scene.running(P0, P1)
    scene.placement.remove_worker("worker-0.1")
    scene.step()
    assert [fence.role for fence in scene.fences] == ["worker-0"]
    assert scene.questions == []  # an offset that is read before the fence may still be moved
    assert scene.settlement.reason(P0) == "waits for the fence of worker-0.1"
    assert scene.held("worker-1.1") == {P1}
    scene.fenced()
    assert [question.partitions for question in scene.questions] == [(P0,)]
    assert scene.held("worker-1.1") == {P1}
    assert scene.settlement.reason(P0) == "waits for stable offsets"
    scene.stable()
    assert scene.held("worker-1.1") == {P0, P1}


def test_a_released_partition_waits_for_its_offsets_alone():
    scene = Scene("worker-0.1")
    scene.running(P0, P1)
    session = scene.session("worker-0.1")
    scene.comes("worker-1.1")
    scene.step()
    scene.fenced("worker-1")
    (moving,) = scene.placement.held("worker-0.1", frozenset({PlacementState.DRAINING}))
    scene.reports("worker-0.1", without=[moving.partition])
    assert scene.fences == []
    assert [question.partitions for question in scene.questions] == [(moving.partition,)]
    assert scene.held("worker-1.1") == set()
    scene.stable()
    assert scene.held("worker-1.1") == {moving.partition}
    assert scene.session("worker-0.1") == session


def test_a_drain_that_is_forced_takes_all_of_the_worker_and_its_session():
    scene = Scene("worker-0.1")
    scene.running(P0, P1, P2)
    before, version = scene.session("worker-0.1"), scene.placement.version("worker-0.1")
    scene.placement.regrant(P1, scene.now)
    scene.step(DRAIN + 1)
    assert scene.held("worker-0.1") == set()
    assert scene.session("worker-0.1") is None
    assert scene.placement.version("worker-0.1") > version
    assert [fence.role for fence in scene.fences] == ["worker-0"]
    scene.fenced()
    scene.stable()
    assert scene.held("worker-0.1") == {P0, P1, P2}
    assert scene.session("worker-0.1") > before


def test_a_transaction_that_failed_takes_all_partitions():
    scene = Scene("worker-0.1", "worker-1.1")
    scene.running(P0, P1)
    scene.placement.transaction_failed("worker-0.1")
    scene.step()
    assert scene.held("worker-0.1") == set()
    assert scene.settlement.reason(P0) == "waits for the fence of worker-0.1"
    scene.fenced()
    scene.stable()
    assert scene.held("worker-0.1") == {P0}


def test_the_next_incarnation_of_a_role_has_the_session_of_the_fence():
    scene = Scene("worker-0.1")
    scene.running(P0)
    scene.placement.remove_worker("worker-0.1")
    scene.comes("worker-0.2")
    scene.step()
    scene.fenced()
    scene.stable()
    assert scene.fences == []  # one was enough
    assert scene.held("worker-0.2") == {P0}
    assert scene.session("worker-0.1") is None


def test_a_worker_that_comes_beside_its_predecessor_gets_another_session():
    scene = Scene("worker-0.1")
    scene.running(P0)
    before = scene.session("worker-0.1")
    scene.settlement.worker_comes("worker-0.2")
    scene.step()
    assert scene.session("worker-0.1") is None
    scene.fenced()
    assert scene.session("worker-0.2") > before


def test_a_silent_worker_keeps_its_partitions_until_its_lease_ends_though_its_role_is_fenced_before():
    scene = Scene("worker-0.1", "worker-1.1")
    scene.running(P0, P1)
    scene.placement.leased("worker-0.1", 30.0)
    scene.placement.remove_worker("worker-0.1", silent=True)
    scene.step(1.0)
    scene.fenced()
    scene.comes("worker-0.2")
    scene.step()
    session = scene.session("worker-0.2")
    assert scene.held("worker-0.1") == {P0}
    scene.step(30.0)
    assert scene.fences == []  # the fence that there was came after the session of the dead one
    scene.stable()
    assert P0 in scene.held("worker-0.2") | scene.held("worker-1.1")
    assert scene.session("worker-0.2") == session


def test_partitions_that_the_group_took_by_force_are_fenced_before_they_come_back():
    scene = Scene("worker-0.1")
    scene.running(P0)
    scene.placement.lose([P0])
    scene.placement.assign([P0])
    scene.step()
    assert scene.questions == []
    assert scene.settlement.reason(P0) == "waits for the fence of worker-0.1"
    scene.fenced()
    assert [question.partitions for question in scene.questions] == [(P0,)]


def test_an_answer_about_offsets_of_before_counts_no_more():
    scene = Scene("worker-0.1")
    scene.placement.assign([P0])
    scene.step()
    late = list(scene.questions)
    scene.placement.lose([P0])
    scene.placement.assign([P0])
    scene.step()
    assert [scene.settlement.offsets_known(question) for question in late] == [[]]
    assert not scene.settlement.settled(P0)
    assert scene.stable() == [P0]


def test_what_an_earlier_start_left_open_is_ended_first():
    scene = Scene("worker-0.1", complete=False)
    scene.placement.assign([P0])
    scene.step()
    scene.fenced()
    assert scene.questions == []
    scene.settlement.left_over(["worker-0", "worker-7"], complete=True)
    scene.step()
    assert [fence.role for fence in scene.fences] == ["worker-7"]
    assert scene.settlement.reason(P0) == "waits until transactions that worker-7 left open are ended"
    scene.fenced()
    scene.stable()
    assert scene.held("worker-0.1") == {P0}


def recovering(*workers, roles=3):
    """A new incarnation beside workers that may hold something, and roles that there were."""
    scene = Scene(incarnation=2, complete=False)
    scene.placement.recovery.begin(dict.fromkeys(workers, 3.0))
    for worker in workers:
        scene.comes(worker)
    scene.settlement.left_over([f"worker-{n}" for n in range(roles)], complete=True)
    return scene


def test_a_new_coordinator_leaves_workers_their_sessions_and_fences_all_other_roles():
    scene = recovering("worker-0.1", "worker-1.1")
    scene.placement.assign([P0, P1])
    scene.settlement.adopt("worker-0.1", (1, 5))
    scene.placement.adopt("worker-0.1", (2, 0), [HeldReport(P0, (1, 9))], [P0, P1])
    scene.step()
    assert scene.fences == []  # the other one may still register
    scene.step(4.0)
    assert scene.settlement.session_of("worker-0.1") == ProducerGrant((1, 5))
    assert scene.held("worker-0.1") == {P0}
    assert sorted(fence.role for fence in scene.fences) == ["worker-1", "worker-2"]
    assert scene.questions == []
    scene.fenced("worker-1")
    assert scene.questions == []  # nobody knows who had it before
    scene.fenced()
    assert [question.partitions for question in scene.questions] == [(P1,)]
    scene.stable()
    assert P1 in scene.held("worker-0.1") | scene.held("worker-1.1")


def test_a_worker_that_has_lost_its_session_gets_one_from_the_new_coordinator():
    scene = recovering("worker-0.1", roles=1)
    scene.placement.assign([P0])
    scene.settlement.adopt("worker-0.1", None)
    scene.placement.adopt("worker-0.1", (2, 0), [], [P0])
    scene.step()
    assert [fence.role for fence in scene.fences] == ["worker-0"]
    scene.fenced()
    scene.stable()
    assert scene.held("worker-0.1") == {P0}


def test_of_two_workers_that_claim_a_partition_the_one_that_lost_it_is_fenced():
    scene = recovering("worker-0.1", "worker-1.1", roles=2)
    scene.placement.assign([P0, P1])
    for worker, session, holdings in (
        ("worker-0.1", (1, 3), [HeldReport(P0, (1, 4)), HeldReport(P1, (1, 5))]),
        ("worker-1.1", (1, 7), [HeldReport(P0, (1, 8))]),
    ):
        scene.settlement.adopt(worker, session)
        scene.placement.adopt(worker, (2, 0), holdings, [P0, P1])
    scene.step()
    assert scene.held("worker-1.1") == {P0}
    assert scene.held("worker-0.1") == set()  # its whole transaction is aborted
    assert [fence.role for fence in scene.fences] == ["worker-0"]
    assert scene.questions == []


def test_a_late_answer_of_a_fence_gives_no_session():
    scene = Scene("worker-0.1")
    scene.step()
    (fence,) = scene.fences
    late = FenceProducer("worker-0", fence.number - 1)
    scene.settlement.fenced(late, ProducerIdentity("x", 1, 1))
    assert scene.session("worker-0.1") is None


def test_questions_name_only_partitions_that_wait_for_nothing_else():
    scene = Scene("worker-0.1", "worker-1.1")
    scene.running(P0, P1)
    scene.placement.remove_worker("worker-1.1")
    scene.placement.assign([P2])
    scene.step()
    assert scene.questions == [FetchOffsets(scene.questions[0].number, (P2,))]
