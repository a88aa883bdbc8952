"""`kafka-actors job`: rows of the list, and what is asked of a job. Ray is a stand-in here."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.status_sample import sample_status
from msgspec.structs import replace

from kafka_actors.cli.job import JobRow, row_of
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.job import Autoscale
from kafka_actors.job.status import JobTotals


class Attached:
    """A detached job that writes down what is asked of it."""

    def __init__(self, confirmed: bool = True) -> None:
        self.requests: list[tuple[Any, ...]] = []
        self._confirmed = confirmed

    def scale(self, workers: int | Autoscale) -> None:
        self.requests.append(("scale", workers))

    def pause(self) -> None:
        self.requests.append(("pause",))

    def resume(self) -> None:
        self.requests.append(("resume",))

    def stop(self, *, timeout: float | None) -> bool:
        self.requests.append(("stop", timeout))
        return self._confirmed

    def status(self) -> Any:
        raise KafkaTimeoutError("the job actor did not answer")


@pytest.mark.parametrize(
    ("arguments", "requests", "says"),
    [
        (["scale", "nightly", "8"], ("scale", 8), "the job nightly is to have 8 workers"),
        (
            ["scale", "nightly", "1..4"],
            ("scale", Autoscale(min=1, max=4)),
            "the job nightly is to have 1..4 workers",
        ),
        (["pause", "nightly"], ("pause",), "the job nightly is paused"),
        (["resume", "nightly"], ("resume",), "the job nightly goes on"),
        (["stop", "nightly", "--timeout", "5"], ("stop", 5.0), "the job nightly has stopped"),
        (["stop", "nightly"], ("stop", None), "the job nightly has stopped"),
    ],
)
def test_a_command_is_a_call_of_the_job_of_that_name(
    arguments: list[str],
    requests: tuple[Any, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Attached()
    monkeypatch.setattr("kafka_actors.cli.job.attached", {"nightly": found}.__getitem__)
    assert run_command_line(["job", *arguments]) == 0
    assert found.requests == [requests]
    assert says in "".join(capsys.readouterr())


def test_commits_that_nobody_confirmed_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_actors.cli.job.attached", lambda name: Attached(confirmed=False))
    assert run_command_line(["job", "stop", "nightly"]) == 1
    assert "it is not known whether the last commits were confirmed" in capsys.readouterr().err

    class Stopped(Attached):
        def status(self) -> Any:
            return replace(sample_status(workers=2), unconfirmed=[("orders", 3)])

    monkeypatch.setattr("kafka_actors.cli.job.attached", lambda name: Stopped(confirmed=False))
    assert run_command_line(["job", "stop", "nightly"]) == 1
    assert "no broker has confirmed the last commits of orders-3" in capsys.readouterr().err


def test_a_wrong_number_of_workers_is_refused_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["job", "scale", "nightly", "many"]) == 2
    assert "is 'many': give a number such as 8, or a range such as 1..16" in capsys.readouterr().err


def test_a_job_is_listed_with_what_is_known_of_it() -> None:
    status = replace(sample_status(workers=2), group_id="g", state="running", totals=JobTotals(lag=7))

    class Answering(Attached):
        def status(self) -> Any:
            return status

    assert row_of("nightly", Answering()) == JobRow("nightly", "detached", "running", "g", 2, 7)  # type: ignore[arg-type]
    assert row_of("nightly", Attached()) == JobRow("nightly", "detached", "no answer")  # type: ignore[arg-type]
    assert row_of("local", "http://127.0.0.1:8000/") == JobRow("local", "http://127.0.0.1:8000/")
    assert row_of("local", "") == JobRow("local", "driver")


def test_one_job_that_has_not_begun_or_does_not_answer_keeps_no_others_from_the_list() -> None:
    class Unbegun(Attached):
        def status(self) -> Any:
            raise UsageError("the job has not begun")

    assert row_of("nightly", Unbegun()) == JobRow("nightly", "detached", "starting")  # type: ignore[arg-type]
    assert row_of("nightly", None) == JobRow("nightly", "", "no answer")
