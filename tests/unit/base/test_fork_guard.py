"""Objects with sockets stay in the process that made them."""

from __future__ import annotations

import pickle

import pytest

import kafka_actors as ka
from kafka_actors.base import fork_guard
from kafka_actors.base.fork_guard import ForkGuard, another_loop
from kafka_actors.errors import UsageError


class Client(ForkGuard):
    def use(self) -> str:
        self._check_process()
        return "used"


class Twin(Client):
    _called = "AsyncClient"


def test_a_guarded_object_works_in_its_own_process() -> None:
    assert Client().use() == "used"


@pytest.mark.parametrize(("kind", "name"), [(Client, "Client"), (Twin, "AsyncClient")])
def test_a_child_is_told_which_object_belongs_to_another_process(
    kind: type[Client], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind()
    monkeypatch.setattr(fork_guard, "_forks", fork_guard._forks)
    fork_guard._after_fork()  # what a fork calls in its child
    with pytest.raises(UsageError, match=f"this {name} was made in process .*make a new one there"):
        client.use()
    assert kind().use() == "used", "one that is made in the child is the child's"


@pytest.mark.parametrize(("kind", "name"), [(Client, "Client"), (Twin, "AsyncClient")])
def test_what_holds_sockets_cant_be_pickled(kind: type[Client], name: str) -> None:
    with pytest.raises(TypeError, match=f"an? {name} can't be pickled"):
        pickle.dumps(kind())


@pytest.mark.parametrize(
    "kind", [ka.Consumer, ka.AsyncConsumer, ka.Producer, ka.AsyncProducer, ka.Admin, ka.AsyncAdmin]
)
def test_each_client_says_by_its_name_that_it_stays_in_its_process(kind: type) -> None:
    with pytest.raises(TypeError, match=f"^an? {kind.__name__} can't be pickled, because it holds sockets"):
        pickle.dumps(kind(bootstrap_servers="localhost:9092"))


def test_the_error_of_another_event_loop_names_the_class() -> None:
    assert another_loop(Twin()).startswith("this Twin belongs to the event loop that it was first used in")
