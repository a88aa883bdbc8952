"""The start of a job on stand-ins of Ray, supervisor and brokers: what is claimed, what a failed start leaves, and who is found by a name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.loop import turns

from kafka_actors.errors import ConfigError, KafkaTimeoutError, UsageError
from kafka_actors.ray import Job, start
from kafka_actors.ray.control import ActorControl
from kafka_actors.ray.running_job import DriverPage, RunningJob


class Place:
    """Ray without a cluster: `steps` are what the start did, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.found: dict[str, tuple[Any, DriverPage | None]] = {}
        self.fails: BaseException | None = None
        ray = SimpleNamespace(
            is_initialized=lambda: False,
            kill=lambda actor: self.steps.append("holder of the name is ended"),
            cloudpickle=start.ray.cloudpickle,
            util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1"),
        )
        monkeypatch.setattr(start, "ray", ray)
        monkeypatch.setattr(start, "known_cluster", lambda: None)
        monkeypatch.setattr(start, "check_cluster", lambda config: self.steps.append("brokers"))
        monkeypatch.setattr(start, "use_ray", self._use_ray)
        monkeypatch.setattr(start, "claim_name", self._claim)
        monkeypatch.setattr(start, "connect_to_ray", lambda only_existing: self.steps.append("connected"))
        monkeypatch.setattr(start, "names_of_jobs", lambda: sorted(self.found))
        monkeypatch.setattr(start, "find_job", self._find)
        monkeypatch.setattr(start, "measure", lambda plan, resource: None)
        monkeypatch.setattr(start, "resource_of", lambda group, job, instance: {})
        monkeypatch.setattr(start, "JobProcess", self._process)
        monkeypatch.setattr(
            RunningJob, "__init__", lambda running, control, **more: setattr(running, "control", control)
        )

    def _use_ray(self, detached: bool) -> Callable[[], None]:
        if detached:
            raise UsageError("it would end with this program")
        self.steps.append("Ray")
        return lambda: self.steps.append("Ray is left")

    def _claim(self, name: str, detached: bool) -> Any:
        self.steps.append(f"name {name}")
        return SimpleNamespace(
            shown_at=SimpleNamespace(remote=lambda page: self.steps.append(f"page {page.url}"))
        )

    def _find(self, name: str) -> tuple[Any, DriverPage | None]:
        if self.found[name] == "ends":
            raise UsageError(f"job {name} has ended")
        if self.found[name] == "silent":
            raise KafkaTimeoutError(f"{name} does not answer")
        return self.found[name]

    def _process(self, plan: Any) -> Any:
        async def begin() -> None:
            self.steps.append(f"supervisor in {threading.current_thread().name}")
            await turns(3)
            if self.fails is not None:
                raise self.fails

        report = SimpleNamespace(shown=lambda: "status", page="http://10.0.0.1:1/", page_node="n")
        return SimpleNamespace(start=begin, supervisor=SimpleNamespace(report=report))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


def job(**options: Any) -> Job:
    return Job(topics=["t"], group_id="g", bootstrap_servers="h:1", **{"process": print, **options})


def test_brokers_are_looked_for_before_ray_and_the_supervisor_runs_in_a_thread_of_its_own(
    place: Place,
) -> None:
    running = start.start_job(job(name="scorer"), each=lambda status: None)
    assert place.steps == [
        "brokers",
        "Ray",
        "name scorer",
        "supervisor in kafka-actors-supervisor",
        "page http://10.0.0.1:1/",
    ]
    running.control._thread.stop()


def test_a_detached_job_that_would_end_with_this_program_is_refused_before_anything_connects(
    place: Place,
) -> None:
    """It was said to go on, and ended with the Ray that the program had started for itself."""
    with pytest.raises(UsageError, match="it would end with this program"):
        start.start_job(job(name="nightly", detached=True), each=lambda status: None)
    assert place.steps == []


def test_a_start_that_fails_gives_up_the_name_and_ray(place: Place) -> None:
    place.fails = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        start.start_job(job(name="scorer"), each=lambda status: None)
    assert place.steps[-2:] == ["holder of the name is ended", "Ray is left"]


def test_a_start_that_fails_before_its_supervisor_is_there_gives_up_the_name_and_ray(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(plan: Any, resource: Any) -> None:
        raise ValueError("no exporter")

    monkeypatch.setattr(start, "measure", fails)
    with pytest.raises(ValueError, match="no exporter"):
        start.start_job(job(name="scorer"), each=lambda status: None)
    assert place.steps == ["brokers", "Ray", "name scorer", "holder of the name is ended", "Ray is left"]


def test_a_start_is_given_up_though_the_supervisors_loop_stands_still(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of Ray that blocks holds the loop, while a signal ends the program."""
    goes_on, warned = threading.Event(), []

    def warning(text: str, *values: object) -> None:
        warned.append(text % values)
        goes_on.set()

    async def never_starts() -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.Event().wait()

    def signalled(status: Any) -> None:
        loops[0].call_soon_threadsafe(goes_on.wait)
        raise SystemExit(143)

    process, loops = place._process(None), []
    process.start = never_starts
    monkeypatch.setattr(start, "JobProcess", lambda plan: process)
    monkeypatch.setattr(start, "EACH_S", 0.01)
    monkeypatch.setattr(start, "GIVE_UP_S", 0.1)
    monkeypatch.setattr(start, "LOOP_S", 0.1)
    monkeypatch.setattr(start.logger, "warning", warning)
    with pytest.raises(SystemExit):
        start.start_job(job(name="scorer"), each=signalled)
    assert warned == ["the supervisor did not answer within 0.2 s: its actors end when Ray is left"]
    assert place.steps[-2:] == ["holder of the name is ended", "Ray is left"]


def test_what_can_not_be_sent_to_workers_is_refused_before_anything_connects(place: Place) -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"^process: can't be sent to the workers: "):
        start.start_job(job(process=lambda batch: lock))
    with pytest.raises(ConfigError, match=r"^sink: can't be sent to the workers: "):
        start.start_job(job(sink=lambda batch: lock))
    assert place.steps == []


def test_a_name_leads_to_a_detached_job_or_to_the_page_of_one_in_its_driver(place: Place) -> None:
    place.found = {
        "detached": ("actor", None),
        "ended": "ends",  # type: ignore[dict-item]
        "silent": "silent",  # type: ignore[dict-item]
        "in a driver": ("actor", DriverPage("http://10.0.0.1:8000/", "n")),
        "without a page": ("actor", DriverPage("", "n")),
    }
    found = dict(start.named_jobs())
    assert sorted(found) == ["detached", "in a driver", "silent", "without a page"]
    assert found["silent"] is None
    detached = found["detached"]
    assert isinstance(detached, RunningJob)
    assert isinstance(detached.control, ActorControl)
    assert (found["in a driver"], found["without a page"]) == ("http://10.0.0.1:8000/", "")
    assert start.job_to_watch("in a driver") == "http://10.0.0.1:8000/"
    assert isinstance(start.job_to_watch("detached"), RunningJob)
    with pytest.raises(UsageError):
        start.job_to_watch("nobody")
