"""Names of jobs in a Ray cluster, on a stand-in for Ray: who holds one, when it is free, and who is found by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from kafka_actors.errors import JobNameInUseError, KafkaTimeoutError, UsageError
from kafka_actors.job.supervisor.supervisor import STOP_S
from kafka_actors.ray.actors import job_actor
from kafka_actors.ray.actors.job_actor import (
    NAME_TIMEOUT_S,
    UNBEGUN_S,
    JobActor,
    claim_name,
    find_detached,
    find_job,
    names_of_jobs,
)
from kafka_actors.ray.running_job import DriverPage

PAGE = DriverPage("http://10.0.0.1:8000/", "node-1")


class Holder:
    """A job actor that holds a name; `page` and `ended` are its answers, or an error of the call."""

    def __init__(self, page: Any = None, ended: Any = False) -> None:
        self.drivers_page = SimpleNamespace(remote=lambda: page)
        self.has_ended = SimpleNamespace(remote=lambda: ended)


class FakeRay:
    """Named actors of a cluster. `made`: the options of each that was made; `frees_at`: when a dead driver's actor gives up its name."""

    def __init__(self) -> None:
        self.named: dict[str, Holder] = {}
        self.made: list[dict[str, Any]] = []
        self.killed: list[Holder] = []
        self.now, self.frees_at = 0.0, float("inf")
        self.util = SimpleNamespace(list_named_actors=lambda all_namespaces: self._listed)
        self._listed: list[dict[str, str]] = []

    def list(self, *actors: tuple[str, str]) -> None:
        self._listed = [{"namespace": namespace, "name": name} for namespace, name in actors]

    def get_actor(self, name: str, namespace: str) -> Holder:
        assert namespace == "kafka_actors"
        if name not in self.named:
            raise ValueError(name)
        return self.named[name]

    def get(self, answer: Any, timeout: float) -> Any:
        assert timeout > 0, "an actor that is stopped never answers"
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Holder) -> None:
        self.killed.append(actor)
        self.named = {name: holder for name, holder in self.named.items() if holder is not actor}

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *args: self._make(options))
        )

    def _make(self, options: dict[str, Any]) -> Holder:
        if self.now >= self.frees_at:
            self.named.clear()
        if options["name"] in self.named:
            raise ValueError("taken")
        self.made.append(options)
        made = self.named[options["name"]] = Holder()
        return made

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setattr(job_actor, "ray", made)
    monkeypatch.setattr(job_actor, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=made.sleep))
    monkeypatch.setattr(job_actor, "on_node", lambda node: f"on {node}")
    return made


# ------------------------------------------------------------ claiming


def test_a_jobs_actor_lives_where_its_loss_ends_the_job_anyway(ray: FakeRay) -> None:
    claim_name("here", detached=False)
    claim_name("detached", detached=True)
    here, detached = ray.made
    assert (here["scheduling_strategy"], here.get("lifetime")) == ("on here", None)
    assert (detached["lifetime"], detached.get("scheduling_strategy")) == ("detached", None)
    assert detached["resources"] == {"node:__internal_head__": 0.001}
    assert {(made["num_cpus"], made["max_restarts"], made["namespace"]) for made in ray.made} == {
        (0, 0, "kafka_actors")
    }


def test_a_name_that_a_running_job_has_is_refused_after_a_while(ray: FakeRay) -> None:
    holder = ray.named["kafka-actors/nightly"] = Holder()
    with pytest.raises(JobNameInUseError, match="nightly"):
        claim_name("nightly", detached=True)
    assert NAME_TIMEOUT_S < ray.now < NAME_TIMEOUT_S + 1
    assert ray.named == {"kafka-actors/nightly": holder}
    assert ray.killed == []


def test_the_end_of_a_killed_drivers_actor_is_waited_for(ray: FakeRay) -> None:
    ray.named["kafka-actors/nightly"] = Holder(ended=RayActorError())
    ray.frees_at = 3.0
    claim_name("nightly", detached=False)
    assert 3.0 <= ray.now < 4.0


def test_a_detached_job_that_has_ended_gives_its_name_to_the_next_at_once(ray: FakeRay) -> None:
    ended = ray.named["kafka-actors/nightly"] = Holder(ended=True)
    claim_name("nightly", detached=True)
    assert (ray.killed, ray.now) == ([ended], 0.0)


def test_a_holder_that_does_not_answer_keeps_its_name(ray: FakeRay) -> None:
    """It may be a running job on a machine that is busy."""
    ray.named["kafka-actors/nightly"] = Holder(ended=GetTimeoutError())
    with pytest.raises(JobNameInUseError):
        claim_name("nightly", detached=True)
    assert ray.killed == []


@pytest.mark.parametrize(("detached", "ends"), [(True, True), (False, False)])
def test_a_detached_job_that_its_driver_left_before_it_began_is_over_and_can_be_stopped(
    ray: FakeRay, detached: bool, ends: bool
) -> None:
    """Its name would be taken for as long as the Ray cluster lives. Where the job runs in the driver, its actor begins none."""
    actor = JobActor(detached)
    ray.now = UNBEGUN_S
    assert not actor.has_ended()
    ray.now += 0.1
    assert actor.has_ended() is ends
    assert actor.time_to_stop() == STOP_S
    assert asyncio.run(actor.stop(1.0, True))


# ------------------------------------------------------------ finding


@pytest.mark.parametrize("find", [find_job, find_detached])
@pytest.mark.parametrize("answer", [None, RayActorError()], ids=["nobody", "dead"])
def test_a_name_that_nobody_holds_is_no_job(
    ray: FakeRay, find: Callable[[str], Any], answer: Exception | None
) -> None:
    if answer is not None:
        ray.named["kafka-actors/nightly"] = Holder(answer)
    with pytest.raises(UsageError, match="no job named 'nightly' runs in this Ray cluster"):
        find("nightly")


@pytest.mark.parametrize("find", [find_job, find_detached])
@pytest.mark.parametrize(
    "answer",
    [GetTimeoutError(), ActorUnavailableError("the connection broke", b"0" * 16)],
    ids=["silent", "unreachable"],
)
def test_a_job_whose_actor_does_not_answer_is_not_said_to_be_none(
    ray: FakeRay, find: Callable[[str], Any], answer: Exception
) -> None:
    """It runs, and another of its name would be refused."""
    ray.named["kafka-actors/nightly"] = Holder(answer)
    with pytest.raises(KafkaTimeoutError, match=r"'nightly' is there, and does not answer within 10 s"):
        find("nightly")


def test_a_job_in_its_driver_is_found_by_its_page_and_only_a_detached_one_is_attached_to(
    ray: FakeRay,
) -> None:
    driver, detached = Holder(PAGE), Holder(None)
    ray.named = {"kafka-actors/driver": driver, "kafka-actors/detached": detached}
    assert find_job("driver") == (driver, PAGE)
    assert find_job("detached") == (detached, None)
    assert find_detached("detached") is detached
    with pytest.raises(UsageError, match="'driver' runs in its driver"):
        find_detached("driver")


def test_jobs_are_listed_without_other_actors(ray: FakeRay) -> None:
    ray.list(
        ("kafka_actors", "kafka-actors/b"),
        ("kafka_actors", "kafka-actors/a"),
        ("kafka_actors", "worker-0"),
        ("users", "kafka-actors/c"),
    )
    assert names_of_jobs() == ["a", "b"]
