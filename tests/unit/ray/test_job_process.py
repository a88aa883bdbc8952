"""A supervisor with its page in one process: the page opens first, shows an ended job, and goes with the process. The supervisor and the
page's server are stand-ins; that a real page answers is shown by tests/integration/test_status_page.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.loop import in_loop, turns

from kafka_actors.errors import ConfigError
from kafka_actors.ray import Job, job_process
from kafka_actors.ray.job_process import JobProcess


class Trace:
    """Log of what was done, in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fails: dict[str, BaseException] = {}

    async def step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.fails:
            raise self.fails[name]


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    made = Trace()

    class Supervisor:
        def __init__(self, plan: Any, runtime: Any) -> None:
            self.report = None

        async def start(self) -> None:
            await made.step("supervisor starts")

    class Page:
        def __init__(self, address: tuple[str, int], report: Any) -> None:
            made.steps.append(f"page for {address[0]}:{address[1]}")

        async def open(self) -> None:
            await made.step("page opens")

        async def close(self) -> None:
            await made.step("page closes")

    monkeypatch.setattr(job_process, "RayRuntime", lambda resources: None)
    monkeypatch.setattr(job_process, "Supervisor", Supervisor)
    monkeypatch.setattr(job_process, "StatusPage", Page)
    return made


def process(**options: Any) -> JobProcess:
    return JobProcess(
        Job(topics=["t"], group_id="g", bootstrap_servers="h:1", process=print, **options).plan()
    )


@in_loop
async def test_the_page_opens_before_the_job_starts_and_shows_it_until_it_is_closed(trace: Trace) -> None:
    made = process(status_address=":8000")
    await made.start()
    assert trace.steps == ["page for localhost:8000", "page opens", "supervisor starts"]
    await made.close()
    assert trace.steps[3:] == ["page closes"]


@in_loop
async def test_an_address_that_is_taken_is_refused_before_anything_starts(trace: Trace) -> None:
    trace.fails["page opens"] = ConfigError("status_address", "is in use")
    with pytest.raises(ConfigError, match="is in use"):
        await process(status_address=":8000").start()
    assert trace.steps[1:] == ["page opens", "page closes"]


@in_loop
async def test_a_job_that_does_not_start_leaves_no_page(trace: Trace) -> None:
    trace.fails["supervisor starts"] = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await process(status_address=":8000").start()
    assert trace.steps[-2:] == ["supervisor starts", "page closes"]


@in_loop
async def test_without_an_address_there_is_no_page(trace: Trace) -> None:
    made = process()
    await made.start()
    await made.close()
    assert trace.steps == ["supervisor starts"]


class Report:
    """A report whose coordinator answers when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.page = self.page_node = ""
        self.wait: Callable[[], Any] = lambda: turns(1)

    async def status(self) -> None:
        self.asked += 1
        await self.wait()

    def shown(self) -> str:
        return f"status after {self.asked}"

    def seen(self) -> float:
        return 0.0


@in_loop
async def test_a_page_that_can_not_look_is_heard_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page = job_process.StatusPage(("127.0.0.1", 0), Report())  # type: ignore[arg-type]
    monkeypatch.setattr(page._site, "look", lambda status, seen: 1 / 0)
    page._tasks.create_task(page._look())
    await turns(20)
    assert "the status page shows no news any more: ZeroDivisionError" in caplog.text
    await page.close()
    await page.close()
