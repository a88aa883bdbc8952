"""The journal of calls that overlap: what it takes for a broken promise, and the situations next to it that it has to let pass."""

from types import SimpleNamespace

import pytest
from simulation.job_journal import LEASE_S, Journal, Violation
from simulation.key_journal import KeyJournal, key_of

from kafka_actors.group.commit_metadata import pack
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.types import TopicPartition

P0 = TopicPartition("orders", 0)
FIRST, NEXT, THIRD = 0, 10, 15
"""Records of one key."""


class Scene:
    def __init__(self):
        self.now = 100.0
        self.journal = Journal(None, "group")
        self.journal.use_clock(lambda: self.now)
        self.calls = KeyJournal(self.journal)
        self.progress = self.journal.partitions[P0].of(0)

    def begin(self, *offsets, worker="job0/worker-0.1", epoch=(1, 1)):
        self.calls.begins("job0", worker, epoch, P0, 0, list(offsets))

    def end(self, *offsets, worker="job0/worker-0.1", epoch=(1, 1), done=True):
        if done:
            self.progress.finished(offsets)
        self.calls.ended(worker, epoch, P0, list(offsets))


@pytest.fixture
def scene():
    return Scene()


def test_keys_come_again_and_some_records_have_none():
    assert key_of(FIRST) == key_of(NEXT)
    assert None in map(key_of, range(12))
    assert len(set(map(key_of, range(30)))) == 6


def test_records_of_a_key_wait_for_those_before_them_and_others_do_not(scene):
    scene.begin(3, 4)
    scene.begin(FIRST)
    with pytest.raises(Violation, match=r"begins 10, and \[0\] of its key are not done"):
        scene.begin(NEXT)


def test_one_call_may_have_several_records_of_a_key(scene):
    scene.begin(FIRST, NEXT)
    scene.end(FIRST, NEXT)
    scene.begin(THIRD)


def test_a_log_that_was_cut_has_others_in_their_place(scene):
    scene.progress.shortened(5)
    scene.begin(NEXT)


def test_a_call_that_failed_is_made_again_and_not_beside_itself(scene):
    scene.begin(FIRST)
    scene.end(FIRST, done=False)
    scene.begin(FIRST)
    with pytest.raises(Violation, match="a key that it is in a call of"):
        scene.begin(FIRST)


def test_a_call_of_a_drain_that_was_forced_hangs_on_beside_those_of_the_next_grant(scene):
    scene.begin(FIRST)
    scene.begin(FIRST, epoch=(1, 5))


def test_a_key_goes_to_another_worker_under_a_later_epoch_only(scene):
    scene.begin(FIRST, epoch=(1, 5))
    scene.end(FIRST, epoch=(1, 5))
    scene.begin(NEXT, worker="job0/worker-1.1", epoch=(1, 7))
    scene.end(NEXT, worker="job0/worker-1.1", epoch=(1, 7))
    with pytest.raises(Violation, match="begins a call under"):
        scene.begin(THIRD, epoch=(1, 5))


def test_who_may_not_have_heard_yet_that_it_lost_a_partition_goes_on_for_its_lease(scene):
    scene.begin(FIRST, worker="job0/worker-1.1", epoch=(1, 7))
    scene.end(FIRST, worker="job0/worker-1.1", epoch=(1, 7))
    scene.journal.partitions[P0].unawaited["job0/worker-0.1"] = scene.now
    scene.begin(NEXT)
    scene.end(NEXT)
    scene.begin(THIRD, worker="job0/worker-1.1", epoch=(1, 7))
    scene.end(THIRD, worker="job0/worker-1.1", epoch=(1, 7))
    scene.now += LEASE_S + 1.0
    with pytest.raises(Violation, match="begins a call under"):
        scene.begin(THIRD + 5)


def test_what_a_commit_says_is_done_beyond_its_offset_has_to_be(scene):
    def committed(*ranges):
        text = pack("", None, done=DoneOffsets(ranges, 0).text(2))
        scene.journal._check_done(P0, SimpleNamespace(offset=2, metadata=text), scene.progress)

    scene.progress.finished([0, 1, 4, 5])
    committed((4, 6))
    with pytest.raises(Violation, match=r"committed as done beyond 2: \[6\], which are not"):
        committed((4, 7))
    scene.progress.shortened(3)
    committed((4, 7))
