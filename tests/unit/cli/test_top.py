"""`kafka-actors top`: what it follows, and how it ends."""

from __future__ import annotations

import msgspec
import pytest
from fakes.status_sample import sample_status

from kafka_actors.cli.job_views import line
from kafka_actors.cli.main import run_command_line
from kafka_actors.cli.top import PATIENCE_S, PageClient, follow, is_url
from kafka_actors.errors import DisconnectedError, KafkaActorsError, KafkaTimeoutError, UsageError
from kafka_actors.job.machines.timeline import TimelineEntry
from kafka_actors.job.status import JobStatus
from kafka_actors.ray.running_job import DriverPage, name_among, page_from


class Job:
    """What is looked at: each item of `answers` is a state, or an error that is raised. A second passes at each look."""

    def __init__(self, *answers: str | KafkaActorsError) -> None:
        self.answers = list(answers)
        self.now = 0.0
        self.entries: list[TimelineEntry] = []
        self.shown: list[tuple[str, float]] = []
        self.notes: list[str] = []

    def status(self) -> JobStatus:
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaActorsError):
            raise answer
        number = len(self.entries) + 1
        self.entries.append(TimelineEntry(number=number, at_s=0.0, kind="state", text=f"entry {number}"))
        return msgspec.structs.replace(sample_status(), state=answer, timeline=list(self.entries))

    def show(self, status: JobStatus, elapsed_s: float) -> None:
        self.shown.append((status.state, round(elapsed_s, 1)))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def follow(self) -> str:
        return follow(self.status, self, sleep=self.sleep, clock=lambda: self.now)  # type: ignore[arg-type]


def test_a_job_is_shown_until_its_end_and_what_happens_meanwhile_is_told() -> None:
    job = Job("starting", "running", "running", "failed")
    assert job.follow() == "failed"
    assert job.shown == [(state, 893.4) for state in ("starting", "running", "running", "failed")]
    assert job.notes == ["state: entry 2", "state: entry 3", "state: entry 4"]


def test_a_job_that_was_there_is_waited_for() -> None:
    job = Job("running", *[KafkaTimeoutError("no answer")] * 5, DisconnectedError("gone"), "stopped")
    assert job.follow() == "stopped"


def test_a_job_that_does_not_come_back_is_an_error() -> None:
    job = Job("running", *[DisconnectedError("the job actor is gone")] * 30)
    with pytest.raises(
        DisconnectedError, match="the job actor is gone; the job was running when it was last seen"
    ):
        job.follow()
    assert PATIENCE_S < job.now < PATIENCE_S + 3


def test_a_page_that_goes_with_a_job_that_stops_is_its_end() -> None:
    job = Job("running", "stopping", *[DisconnectedError("connection refused")] * 30)
    assert job.follow() == "stopped"


def test_a_job_that_is_not_there_is_an_error_at_once() -> None:
    job = Job(DisconnectedError("connection refused"))
    with pytest.raises(DisconnectedError):
        job.follow()
    assert job.now == 0.0


def test_the_status_of_the_page_is_shown_as_that_of_a_job() -> None:
    status = msgspec.json.decode(msgspec.json.encode(sample_status(24, 4)), type=JobStatus)
    assert line(status, status.at_s - status.started_s).split("  ") == [
        " 893.4 s",
        "running",
        "4 workers (1..16)",
        "24 partitions",
        "184,302,511 records",
        "212,400/s",
        f"lag {status.lag:,} (38.5s)",
        "latency 84ms, p99 1.3s",
        "restarts 2",
    ]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (":8000", True),
        ("host:8000", True),
        ("[::1]:8000/", True),
        ("http://host/", True),
        ("https://host:1/x", True),
        ("orders", False),
        ("orders:live", False),
        ("team/orders", False),
    ],
)
def test_an_address_is_no_name_of_a_job(text: str, url: bool) -> None:
    assert is_url(text) is url


def test_only_http_is_asked() -> None:
    with pytest.raises(UsageError, match="'file:///etc/passwd' is not the address of a status page"):
        PageClient("file:///etc/passwd")


def test_a_page_has_no_user_and_a_password_is_not_shown() -> None:
    with pytest.raises(UsageError, match=r"'https://\*\*\*@h:1' is not the address of a status page"):
        PageClient("https://u:hush@h:1")


def test_a_wrong_address_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["top", "ftp://x"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "kafka-actors: error: 'ftp://x' is not the address of a status page: give http://host:port\n",
    )


# ---------------------------------------------------------------- a job by its name


def test_a_job_is_found_by_its_name_or_because_it_is_the_only_one() -> None:
    assert name_among("orders", ["orders", "returns"]) == "orders"
    assert name_among(None, ["orders"]) == "orders"


@pytest.mark.parametrize(
    ("name", "names", "said"),
    [
        (
            None,
            ["orders", "returns"],
            "which job of this Ray cluster? those with a name are orders, returns; ",
        ),
        (None, [], "which job of this Ray cluster? no job here has a name; "),
        ("x", ["orders"], "no job named 'x' runs in this Ray cluster: those with a name are orders; "),
        ("x", [], "no job named 'x' runs in this Ray cluster: no job here has a name; "),
    ],
)
def test_what_is_no_name_of_a_job_is_told_with_what_to_give_instead(
    name: str | None, names: list[str], said: str
) -> None:
    with pytest.raises(UsageError) as found:
        name_among(name, names)
    assert str(found.value).startswith(said)
    assert "the URL" in str(found.value).removeprefix(said)


@pytest.mark.parametrize(
    ("url", "node"),
    [
        ("http://127.0.0.1:8000/", "10.0.0.1"),
        ("http://[::1]:8000/", "10.0.0.1"),
        ("http://10.0.0.2:8000/", "10.0.0.2"),
        ("http://[fd00::2]:8000/", "fd00::2"),
    ],
)
def test_a_drivers_job_is_seen_by_its_page_where_that_can_be_reached(url: str, node: str) -> None:
    assert page_from(DriverPage(url, node), "orders", "10.0.0.1") == url


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (DriverPage(), "the job 'orders' runs in its driver and is just starting: try again"),
        (DriverPage("", "10.0.0.1"), "start it with --status :8000"),
        (
            DriverPage("http://127.0.0.1:8000/", "10.0.0.2"),
            "is for that machine alone: look there, or start it with ",
        ),
        (
            DriverPage("http://[::1]:8000/", "10.0.0.2"),
            "on 10.0.0.2, and its status page, http://[::1]:8000/, is",
        ),
    ],
)
def test_why_a_drivers_job_cannot_be_seen_is_told_with_what_to_do(page: DriverPage, said: str) -> None:
    with pytest.raises(UsageError) as found:
        page_from(page, "orders", "10.0.0.1")
    assert said in str(found.value)
