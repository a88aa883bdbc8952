"""The state machine of one transactional id."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.fake_wire import NOW_MS

from kafka_actors import errors
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.transactions import MAX_EPOCH, Transaction

FENCED, MAPPING = errors.ProducerFencedError.code, errors.InvalidProducerIdMappingError.code
CONCURRENT, STATE = errors.ConcurrentTransactionsError.code, errors.InvalidTxnStateError.code
ABORTABLE = errors.TransactionAbortableError.code
PLACE = ("t", 0)


class Driven:
    """A transaction, and what its coordinator does with it."""

    def __init__(self, *, version_2: bool) -> None:
        self.txn = Transaction(7, 60_000, NOW_MS)
        self.version_2 = version_2
        self.ids = 100

    def init(self, expected: tuple[int, int] | None = None) -> int:
        """The epoch, or minus the error code."""
        return self._done(
            lambda: self.txn.init(expected, 60_000, self.new_id, NOW_MS, version_2=self.version_2),
            lambda: self.txn.epoch,
        )

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    def add(self, producer_id: int = 7, epoch: int = 0) -> int:
        return self._done(lambda: self.txn.add(producer_id, epoch, [PLACE], NOW_MS), lambda: 0)

    def end(self, epoch: int = 0, *, committed: bool = True, producer_id: int = 7) -> int | tuple[int, int]:
        """Producer id and epoch to go on with, or minus the error code; the markers are written at once."""
        code = self._done(
            lambda: self.txn.end(
                producer_id, epoch, committed, self.new_id, NOW_MS, version_2=self.version_2
            ),
            lambda: 0,
        )
        answered = self.txn.answered
        if self.txn.ending and not code:
            self.txn.complete(NOW_MS)
        return code or answered

    def _done(self, change: Callable[[], object], result: Callable[[], int]) -> int:
        try:
            change()
        except Refused as refused:
            return -refused.code
        return result()


@pytest.fixture(params=[False, True], ids=["version 1", "version 2"])
def driven(request: pytest.FixtureRequest) -> Driven:
    return Driven(version_2=request.param)


def test_each_producer_that_begins_fences_the_one_before(driven: Driven) -> None:
    assert driven.init() == 0
    assert driven.init() == 1
    assert driven.add(epoch=0) == -FENCED
    assert driven.add(producer_id=8, epoch=1) == -MAPPING
    assert driven.add(epoch=1) == 0
    assert driven.end(epoch=0) == -FENCED
    assert driven.end(epoch=1, producer_id=8) == -MAPPING


def test_a_producer_that_names_its_epoch_gets_the_next_one_also_when_it_asks_again(driven: Driven) -> None:
    assert driven.init() == 0
    assert driven.init((7, 0)) == 1
    assert driven.init((7, 0)) == 1, "the answer was lost"
    assert driven.init((8, 1)) == -FENCED
    assert driven.init() == 2
    assert driven.init((7, 1)) == -FENCED, "another one came in between"


def test_a_producer_that_begins_aborts_the_open_transaction_first(driven: Driven) -> None:
    driven.init()
    driven.add()
    assert driven.init() == -CONCURRENT
    assert driven.txn.state == "PrepareAbort"
    assert driven.init() == -CONCURRENT, "the markers are not written"
    assert driven.add(epoch=driven.txn.epoch) == -CONCURRENT
    driven.txn.complete(NOW_MS)
    assert (driven.txn.state, driven.txn.epoch) == ("CompleteAbort", 1)
    assert driven.init() == 2


def test_partitions_are_verified(driven: Driven) -> None:
    driven.init()
    driven.add()
    driven.txn.verify(7, 0, PLACE)
    with pytest.raises(Refused) as refused:
        driven.txn.verify(7, 0, ("t", 1))
    assert refused.value.code == ABORTABLE


def test_a_transaction_begins_with_its_first_partition_and_has_its_time(driven: Driven) -> None:
    driven.init()
    assert driven.txn.started_ms == -1
    driven.add()
    driven.txn.add(7, 0, [("t", 1)], NOW_MS + 5)
    assert driven.txn.partitions == {PLACE, ("t", 1)}
    assert driven.txn.timed_out_ms == NOW_MS + 60_001


def test_ends_of_version_1() -> None:
    driven = Driven(version_2=False)
    driven.init()
    assert driven.end() == -STATE, "nothing was begun"
    driven.add()
    assert driven.end() == (7, 0)
    assert driven.end() == (7, 0), "the answer was lost"
    assert driven.end(committed=False) == -STATE
    driven.add()
    assert driven.txn.state == "Ongoing"
    driven.txn.end(7, 0, False, driven.new_id, NOW_MS, version_2=False)
    assert driven.end(committed=False) == -CONCURRENT
    assert driven.end(committed=True) == -STATE
    driven.txn.complete(NOW_MS)
    assert driven.end(committed=True) == -STATE


def test_ends_of_version_2_raise_the_epoch() -> None:
    driven = Driven(version_2=True)
    driven.init()
    assert driven.end() == -STATE, "a commit needs a partition"
    driven.add()
    assert driven.end(0) == (7, 1)
    assert driven.end(0) == (7, 1), "the answer was lost"
    assert driven.end(0, committed=False) == -STATE
    assert driven.end(1) == -STATE
    assert driven.end(1, committed=False) == (7, 2), "an abort without partitions"
    assert driven.end(1, committed=False) == (7, 2)
    assert driven.end(0, committed=False) == -FENCED
    assert driven.add(epoch=2) == 0
    driven.txn.end(7, 2, True, driven.new_id, NOW_MS, version_2=True)
    assert driven.end(2) == -CONCURRENT
    assert driven.end(2, committed=False) == -STATE
    assert driven.end(3) == -FENCED


def test_a_new_producer_id_follows_when_the_epochs_are_used_up() -> None:
    driven = Driven(version_2=False)
    driven.init()
    driven.txn.epoch = MAX_EPOCH - 1
    assert driven.init() == 0
    assert driven.txn.producer_id == 101
    driven.txn.epoch = MAX_EPOCH - 1
    assert driven.init((101, MAX_EPOCH - 1)) == 0
    assert driven.txn.producer_id == 102
    assert driven.init((101, MAX_EPOCH - 1)) == 0, "the answer was lost"
    assert driven.init((101, 5)) == -FENCED


def test_an_end_of_version_2_that_uses_up_the_epochs() -> None:
    driven = Driven(version_2=True)
    driven.init()
    driven.txn.epoch = MAX_EPOCH - 1
    driven.add(epoch=MAX_EPOCH - 1)
    assert driven.end(MAX_EPOCH - 1) == (101, 0)
    assert (driven.txn.producer_id, driven.txn.epoch) == (101, 0)
    assert driven.end(MAX_EPOCH - 1) == (101, 0), "the answer was lost"
