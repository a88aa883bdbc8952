"""Consumers in tests of groups: what their listener was told, and polling until something holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from waiting import until

import kafka_actors as ka
from kafka_actors.consumer import ConsumerRebalanceListener
from kafka_actors.consumer.consumer_session import ConsumerSession
from kafka_actors.consumer.rebalance import RebalanceKind
from kafka_actors.types import TopicPartition


def values(count: int, start: int = 0) -> list[bytes]:
    """Values that sort as their numbers do."""
    return [b"%06d" % i for i in range(start, start + count)]


class Log(ConsumerRebalanceListener):
    """Writes down what it is told, and in which thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()

    def _note(self, what: str, partitions: Iterable[Any]) -> None:
        self.calls.append((what, [tp.partition for tp in partitions]))
        self.threads.add(threading.get_ident())

    def on_partitions_assigned(self, partitions: list[Any]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: list[Any]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: list[Any]) -> None:
        self._note("lost", partitions)


def consumers(servers: str, **defaults: Any) -> Iterator[Callable[..., ka.Consumer]]:
    """For a fixture: makes consumers with these options, unless others are given, and closes them in the end."""
    made = []

    def make(*args: Any, **options: Any) -> ka.Consumer:
        here = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
        consumer = ka.Consumer(*args, **{**here, **defaults, **options})
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def members_of(servers: str, group: str) -> int:
    """The number of a group's members."""
    with ka.Admin(bootstrap_servers=servers) as admin:
        return len(admin.describe_consumer_groups([group])[group].members)


def poll_until(
    polled: Iterable[ka.Consumer],
    holds: Callable[[], object],
    seconds: float = 40.0,
    seen: list[bytes] | None = None,
) -> None:
    """Polls all of them in turn until something holds; `seen` gets the values."""

    def poll() -> object:
        if holds():
            return True
        for consumer in polled:
            batch = consumer.poll_batch(timeout_ms=50)
            if batch is not None and seen is not None:
                seen.extend(batch["value"].to_pylist())
        return False

    until(poll, seconds, pause=0.0, shown=lambda: [c.assignment() for c in polled])


def assign_while_taking(session: ConsumerSession, taking: str, tp: TopicPartition) -> Log:
    """Has the notice of an assignment come while the user's thread takes records by this method of its `Delivery`: it has just looked for
    notices. Returns what its listener is told."""
    take, rebalances, session.listener = getattr(session.reader, taking), session.core.rebalances, Log()
    notices = [
        SimpleNamespace(what=RebalanceKind.ASSIGNED, partitions=frozenset({tp}), done=lambda offsets: None)
    ]

    def pop() -> Any:
        rebalances.pending = False
        return notices.pop() if notices else None

    def taken_meanwhile() -> Any:
        if notices:
            rebalances.next, rebalances.pending = pop, True
        return take()

    setattr(session.reader, taking, taken_meanwhile)
    return session.listener
