"""A producer of the scenario `group` that writes in transactions, and what must hold of each: all of it is read, or nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec

from kafka_actors import AsyncProducer
from kafka_actors.errors import KafkaActorsError
from kafka_actors.types import TopicPartition

from .group_writer import CALL_S, SLACK_S, Writer

if TYPE_CHECKING:
    from .group_checks import GroupChecks

TRANSACTION_S = 8.0
"""The time after which brokers abort a transaction of a producer that they hear nothing of."""
ABORTED_OF_FIVE = 1


class Transaction(msgspec.Struct):
    """Records that were written in one transaction. `outcome`: committed, aborted, or unknown where its end raised an error."""

    values: list[bytes]
    outcome: str = "unknown"


class TransactionalWriter(Writer):
    """A `Writer` whose records are in transactions, one in five of which it aborts. After an error a new producer takes over its id."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.transactions: list[Transaction] = []

    def options(self) -> dict[str, Any]:
        return {
            **super().options(),
            "transactional_id": self.name,
            "transaction_timeout_ms": int(TRANSACTION_S * 1000),
            "delivery_timeout_ms": 7_000,
        }

    async def some(self, producer: AsyncProducer, tp: TopicPartition) -> bool:
        run, transaction = self.run, Transaction([])
        self.transactions.append(transaction)
        aborts = self.random.randrange(5) < ABORTED_OF_FIVE
        try:
            if len(self.transactions) == 1 or self.anew:
                await self._limited("init_transactions", producer.init_transactions(timeout_ms=CALL_S * 1000))
                self.anew = False
            await self._limited("begin_transaction", producer.begin_transaction())
            for _ in range(self.random.randint(1, 3)):
                transaction.values.append(self.next_value())
                await self.send(producer, tp, transaction.values[-1])
                tp = self.any_partition()
            if aborts:
                await self._limited("abort_transaction", producer.abort_transaction(timeout_ms=CALL_S * 1000))
            else:
                await self._limited(
                    "commit_transaction", producer.commit_transaction(timeout_ms=CALL_S * 1000)
                )
        except KafkaActorsError as error:
            run.count("errors of transactions")
            run.note_error(self.name, error)
            return False
        transaction.outcome = "aborted" if aborts else "committed"
        run.count(f"transactions {transaction.outcome}")
        return True

    async def _limited(self, what: str, work: Awaitable[Any]) -> None:
        await self.run.limited(f"{what} of {self.name}", CALL_S + SLACK_S, work, self.name)

    def check(self, checks: GroupChecks, visible: set[bytes]) -> None:
        """Looks at all transactions at the end. `visible`: values that readers of committed transactions are given."""
        for transaction in self.transactions:
            kept = [value for value in transaction.values if checks.is_kept(value)]
            seen = [value for value in kept if value in visible]
            told = f"a transaction of {self.name} with {transaction.values}"
            if transaction.outcome == "committed" and seen != kept:
                checks.fail(f"{told} was committed: {sorted({*kept} - {*seen})} can't be read")
            if transaction.outcome == "aborted" and seen:
                checks.fail(f"{told} was aborted: {seen} can be read")
            if transaction.outcome == "unknown" and seen and seen != kept:
                checks.fail(f"{told} is there in part: {seen} of {kept}")
