"""The copier of docs/how-to/transactions.md over brokers that refuse, lose answers and abort: it ends, and each record is there once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from waiting import at_pace_s, until

import kafka_actors as ka
from kafka_actors.errors import (
    InvalidProducerIdMappingError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import AnswerWithError, LoseResponse
from kafka_actors.testing.produce import Produce

PAGE = Path(__file__).parents[2] / "docs/how-to/transactions.md"
MOST_ROUNDS = 20
"""Rounds after which the loop is one without an end."""
SHORT = {"request_timeout": 0.3, "max_block": 0.4}
"""Limits for tests that wait for the end of one. Elsewhere a call that takes its time is no error."""


def quick(**limits_s: float) -> dict[str, int]:
    """Limits that are soon over, each in seconds of a quiet machine."""
    own = {f"{name}_ms": round(1000 * at_pace_s(seconds)) for name, seconds in limits_s.items()}
    backoff = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}
    return backoff | own


@pytest.fixture(params=["3.9", "4.1"], ids=["version-1", "version-2"])
def brokers(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    """Brokers of both transaction versions, with 100 numbered records. One coordinates, and another one has what is written: where
    answers of one of them are lost, the connection to the other one lasts."""
    with FakeKafka(2, version=request.param, topics={"orders": 1, "scored": 1}) as kafka:
        coordinator = 3 - kafka.leaders("scored")[0]
        kafka.set_coordinator("copier", coordinator)
        kafka.set_transaction_coordinator("copier-1", coordinator)
        Produce(kafka.bootstrap_servers)("orders", [b"%d" % n for n in range(100)])
        yield kafka


def copier(
    brokers: FakeKafka, after: Callable[[list[str]], object] = lambda shown: None, **limits_s: float
) -> list[str]:
    """Runs the page's program, in small batches and with these limits. Returns what it printed; `after` gets that after each line."""
    shown: list[str] = []
    limits = quick(**limits_s)

    def printed(*parts: object) -> None:
        shown.append(" ".join(map(str, parts)))
        assert len(shown) < MOST_ROUNDS, f"the loop has no end: {shown[-1]}"
        after(shown)

    program = next(b for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "while" in b)
    program = program.replace("localhost:9092", brokers.bootstrap_servers)
    program = program.replace("import kafka_actors as ka\n", "")

    class CopiersConsumer(ka.Consumer):
        """A consumer that finds nothing more to read when all is committed."""

        def poll_batch(self, *, timeout_ms: float) -> pa.RecordBatch | None:
            all_is = brokers.committed("copier") == {ka.TopicPartition("orders", 0): 100}
            return None if all_is else super().poll_batch(timeout_ms=timeout_ms * 10)

    def connected(**options: object) -> ka.Producer:
        """Returns a producer that has connected: the limits are for its calls."""
        producer = ka.Producer(**{**limits, **options})

        def entered() -> bool:
            try:
                producer.__enter__()
            except (KafkaTimeoutError, NoBrokersAvailable):
                return False
            return True

        until(entered, 30, "the producer to be connected")
        return producer

    client = SimpleNamespace(
        **{name: getattr(ka, name) for name in ("TopicPartition", "KafkaActorsError", "errors")},
        Consumer=CopiersConsumer,
        Producer=connected,
    )
    program = program.replace("ka.Consumer(", "ka.Consumer(\n        batch_rows=25,")
    exec(compile(program, str(PAGE), "exec"), {"ka": client, "print": printed})
    return shown


def late_commits(shown: list[str]) -> int:
    """Number of commits whose end the copier didn't wait for any longer. On a slow machine another call may be late, too."""
    return sum("commit_transaction: not done within" in line for line in shown)


def committed(brokers: FakeKafka) -> list[int]:
    return [int(r.value) for r in brokers.records("scored", 0, read_committed=True)]


@pytest.mark.parametrize("carried_out", [True, False], ids=["answers", "requests"])
def test_it_goes_on_after_a_commit_that_was_answered_too_late(brokers, carried_out):
    action = LoseResponse() if carried_out else AnswerWithError(14)  # COORDINATOR_LOAD_IN_PROGRESS
    taken = brokers.on("EndTxn", action, times=None)
    shown = copier(brokers, lambda shown: late_commits(shown) and taken.end(), **SHORT)
    assert late_commits(shown)
    assert committed(brokers) == list(range(100))


def test_it_goes_on_after_a_commit_whose_records_were_given_up_later(brokers):
    taken = brokers.on("Produce", LoseResponse(), times=None)
    shown = copier(
        brokers, lambda shown: late_commits(shown) >= 2 and taken.end(), **SHORT, delivery_timeout=0.8
    )
    assert late_commits(shown) >= 2
    assert committed(brokers) == list(range(100))


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("EndTxn", InvalidProducerIdMappingError),
        ("EndTxn", ProducerFencedError),
        ("EndTxn", UnsupportedVersionError),
        ("TxnOffsetCommit", ProducerFencedError),
        ("InitProducerId", TransactionalIdAuthorizationFailedError),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_it_ends_with_an_error_that_no_other_transaction_mends(brokers, api, error):
    brokers.on(api, AnswerWithError(error.code), times=None)
    with pytest.raises(error) as ended:
        copier(brokers)
    assert ended.value.fatal


def test_errors_after_which_the_next_transaction_can_be_begun_say_so(brokers):
    for code in (120, 25, 87):  # TRANSACTION_ABORTABLE, UNKNOWN_MEMBER_ID, INVALID_RECORD
        brokers.on("Produce" if code == 87 else "TxnOffsetCommit", AnswerWithError(code))
    shown = copier(brokers)
    assert len(shown) in (3, 4)  # a record and the offsets of one transaction may be refused together
    assert committed(brokers) == list(range(100))
    assert not KafkaTimeoutError().fatal
