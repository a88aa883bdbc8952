"""A task's transaction among those of its other tries: what each has committed, whatever order they come in."""

import pytest

from kafka_actors import errors
from kafka_actors.errors import (
    ConfigError,
    MessageTooLargeError,
    ProducerFencedError,
    StageError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    UndeliveredError,
    UsageError,
)
from kafka_actors.spark.source.machines.task_markers import TaskMarker, WriteName
from kafka_actors.spark.source.task_transaction import TaskTransaction, _noted, ends_the_write

QUERY = "6f6c2b0e-7e0b-4d8b-9a55-0d0d3b1c2a11"


def task(batch=7):
    return WriteName(QUERY, batch, "/data/c").task("scored", "scored", 0)


@pytest.fixture(autouse=True)
def new_process():
    _noted.clear()


class Broker:
    """Epochs of one transactional id, its group's offsets, and what readers see."""

    def __init__(self):
        self.epoch = -1
        self.offsets = {}
        self.noted = {}
        self.seen = []


class Try:
    """The producer of one try of a task. `after[verb]` is called once when that verb is done."""

    def __init__(self, broker, **after):
        self.broker = broker
        self.after = after
        self.said = []
        self.sent = []
        self.moved = {}
        self.epoch = broker.epoch  # of an earlier task of this id

    def _done(self, verb):
        self.said.append(verb)
        if (call := self.after.pop(verb, None)) is not None:
            call()

    def _check(self):
        if self.epoch != self.broker.epoch:
            raise ProducerFencedError("fenced")

    def take_over(self, transactional_id):
        self.broker.epoch += 1
        self.epoch = self.broker.epoch
        self._done("take_over")

    def stable_offsets(self, group_id, partitions):
        found = {tp: self.broker.offsets[tp] for tp in partitions if tp in self.broker.offsets}
        self._done("stable_offsets")
        return found

    def noted_splits(self, group_id, partition):
        assert group_id.endswith("-scored-splits")
        return self.broker.noted.get(partition)

    def note_splits(self, group_id, partition, splits):
        self.broker.noted[partition] = splits

    def begin_transaction(self):
        self._done("begin")

    def send(self, row):
        self.sent.append(row)

    def send_offsets_to_transaction(self, offsets, group):
        self._check()
        self.moved = offsets
        self.group = group

    def commit_transaction(self):
        self._check()
        self.broker.offsets |= self.moved
        self.broker.seen += self.sent
        self._done("commit")

    def abort_transaction(self):
        self._check()
        self._done("abort")


def run(producer, batch=7, rows=("a", "b"), splits="s", clock=lambda: 0.0):
    """One try of the task; returns whether it has written."""
    with TaskTransaction(producer, task(batch), splits, 900.0, clock) as transaction:
        for row in rows if transaction.writes else ():
            producer.send(row)
        transaction.commit(len(rows))
    return transaction.writes


def test_a_task_commits_its_rows_with_its_marker():
    broker = Broker()
    producer = Try(broker)
    assert run(producer)
    assert broker.seen == ["a", "b"]
    assert broker.offsets == {task().marker: TaskMarker(2, "s").committed(7)}
    assert producer.group == (task().group, -1, "", None)
    assert producer.said == ["take_over", "stable_offsets", "begin", "commit"]


def test_a_task_that_is_run_again_writes_nothing_and_the_next_micro_batch_does():
    broker = Broker()
    run(Try(broker))
    again = Try(broker)
    assert not run(again)
    assert again.said == ["take_over", "stable_offsets"]
    assert run(Try(broker), batch=8, rows=["c"])
    assert broker.seen == ["a", "b", "c"]


def test_a_task_without_rows_leaves_a_marker_too():
    broker = Broker()
    run(Try(broker), rows=())
    assert broker.offsets == {task().marker: TaskMarker(0, "s").committed(7)}


def test_an_older_try_can_commit_no_more_once_the_marker_is_read():
    """Fencing comes before the marker is read: what commits in between would be written again."""
    broker = Broker()
    older = TaskTransaction(old := Try(broker), task(), "s")
    older.__enter__()
    old.send("a")

    def commits():
        with pytest.raises(ProducerFencedError):
            older.commit(1)

    assert run(Try(broker, stable_offsets=commits), rows=["a"])
    assert broker.seen == ["a"]


def test_what_an_older_try_commits_before_it_is_fenced_is_found():
    broker = Broker()
    older = TaskTransaction(old := Try(broker), task(), "s")
    older.__enter__()
    old.send("a")
    newer = Try(broker)
    before = newer.take_over

    def take_over(transactional_id):
        older.commit(1)
        before(transactional_id)

    newer.take_over = take_over
    assert not run(newer, rows=["a"])
    assert broker.seen == ["a"]


def test_a_try_that_is_fenced_ends_with_a_named_error():
    broker = Broker()
    with pytest.raises(ProducerFencedError) as caught:
        run(Try(broker, begin=lambda: run(Try(broker))))
    assert str(caught.value).endswith(
        f"task 0 of micro-batch 7 of query {QUERY}: another try of it has begun and fenced this one, as spark.speculation makes "
        "them; nothing of this try is committed"
    )
    assert broker.seen == ["a", "b"]


def test_a_try_that_took_longer_than_a_transaction_may_says_so():
    broker, times = Broker(), iter([0.0, 901.0])

    def times_out():
        broker.epoch += 1

    with pytest.raises(
        ProducerFencedError,
        match=r"took 901 s, longer than kafka.transaction.timeout.ms \(900000\).*transaction.max.timeout.ms",
    ):
        run(Try(broker, begin=times_out), clock=lambda: next(times))


def test_a_block_that_raises_aborts_and_its_own_error_goes_on():
    broker = Broker()
    producer = Try(broker)
    with pytest.raises(ZeroDivisionError), TaskTransaction(producer, task(), "s"):
        raise ZeroDivisionError
    assert producer.said[-1] == "abort"
    fenced = Try(broker, begin=lambda: Try(broker).take_over("x"))
    with pytest.raises(ZeroDivisionError), TaskTransaction(fenced, task(), "s"):
        raise ZeroDivisionError  # the user's error says more than that it is fenced, too


def test_a_replay_that_finds_other_rows_or_splits_or_an_older_checkpoint_fails_and_writes_nothing():
    broker = Broker()
    run(Try(broker))
    with pytest.raises(UsageError, match="wrote 2 rows, and when it is run again there are 3"):
        run(Try(broker), rows="abc")
    with pytest.raises(ConfigError, match="other split options"):
        run(Try(broker), splits="t")
    with pytest.raises(ConfigError, match=r"/data/c is at micro-batch 6, .* up to micro-batch 7"):
        run(Try(broker), batch=6)
    assert broker.seen == ["a", "b"]


def test_a_replay_under_other_split_options_writes_nothing_though_its_task_was_not_written_before():
    """Replays may have more tasks than the first run: their rows may be those that another task has committed."""
    broker = Broker()
    run(Try(broker))
    _noted.clear()
    broker.offsets.clear()  # those of another task
    with pytest.raises(ConfigError, match="other split options"):
        run(Try(broker), splits="t")
    assert broker.seen == ["a", "b"]
    assert run(Try(broker), batch=8, splits="t")


def test_the_split_options_are_asked_for_once_in_a_process():
    broker = Broker()
    run(Try(broker))
    again = Try(broker)
    again.noted_splits = None
    broker.offsets.clear()
    assert run(again)


def test_those_of_a_batch_are_planned_once_and_not_noted():
    broker = Broker()
    name = WriteName(QUERY, 0, streaming=False).task("scored", "scored", 0)
    with TaskTransaction(Try(broker), name, "s") as transaction:
        transaction.commit(0)
    assert broker.noted == {}


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (ConfigError("a", "b"), True),
        (MessageTooLargeError(), True),
        (
            UndeliveredError(2, {("t", 0): MessageTooLargeError(), ("t", 1): TransactionAbortedError("x")}),
            True,
        ),
        (UndeliveredError(2, {("t", 1): TransactionAbortedError("x")}), False),
        (UndeliveredError(1, {("t", 0): errors.DeliveryTimeoutError("t", 0, 1, 120_000, True)}), False),
        (ProducerFencedError("x"), False),
        (TransactionOutcomeUnknownError("x"), False),
        (errors.InvalidProducerEpochError(), False),
        (errors.DisconnectedError("x"), False),
    ],
)
def test_errors_of_one_try_are_raised_in_the_task_and_others_end_the_write(error, final):
    assert ends_the_write(error) is final
    around = StageError("sink", "t", 0, 1, 2, 1, "x")
    around.__cause__ = error
    assert ends_the_write(around) is final
