"""Which Ray a job joins or starts, and when one that was started for jobs ends; `ray` itself is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_actors.errors import StartTimeoutError, UsageError
from kafka_actors.ray import cluster


class FakeRay:
    """`ray` of a process. `answers`: addresses at which a cluster is."""

    def __init__(self) -> None:
        self.at: str | None = None
        self.answers: set[str] = set()
        self.inits: list[dict[str, Any]] = []
        self.shutdowns = 0

    def is_initialized(self) -> bool:
        return self.at is not None

    def init(self, address: str | None, **options: Any) -> None:
        found = cluster.known_cluster() if address is None else address  # Ray itself looks at the same file
        if found != "local" and found not in self.answers:
            raise ConnectionError(found)
        self.at = found
        self.inits.append({"address": found, "with_its_token": address is None, **options})

    def shutdown(self) -> None:
        self.at = None
        self.shutdowns += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRay:
    """On a machine where nobody has started Ray."""
    made = FakeRay()
    monkeypatch.setattr(cluster, "ray", made)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_LOGGER_LEVEL", raising=False)
    return made


def started_by_hand(tmp_path: Path, address: str) -> None:
    """What `ray start` leaves on its machine."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)


def test_without_a_cluster_one_is_started_for_this_program_alone(ray: FakeRay) -> None:
    assert cluster.known_cluster() is None
    assert cluster.connect_to_ray() is True
    [init] = ray.inits
    assert (init["address"], init["include_dashboard"], init["logging_level"]) == ("local", False, "warning")


def test_a_program_that_is_in_a_cluster_stays_there(ray: FakeRay) -> None:
    ray.at = "of the user's own"
    assert cluster.connect_to_ray() is False
    assert cluster.connect_to_ray(only_existing=True) is False
    assert ray.inits == []


@pytest.mark.parametrize("said_by", ["RAY_ADDRESS", "ray start"])
def test_a_cluster_that_is_there_is_joined(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said_by: str
) -> None:
    ray.answers = {"10.0.0.1:6379"}
    if said_by == "RAY_ADDRESS":
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
        started_by_hand(tmp_path, "10.0.0.2:6379")
    else:
        started_by_hand(tmp_path, "10.0.0.1:6379")
    monkeypatch.setenv("RAY_LOGGER_LEVEL", "debug")
    assert cluster.known_cluster() == "10.0.0.1:6379"
    assert cluster.connect_to_ray() is False
    [init] = ray.inits
    assert (init["address"], init["logging_level"]) == ("10.0.0.1:6379", "debug")
    assert init["with_its_token"] == (said_by == "ray start"), (
        "named, it is joined without the token that `ray start` made"
    )


def test_a_named_cluster_that_does_not_answer_is_an_error_and_no_other_is_started(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job in a Ray of its own would find neither the machines nor the code that were meant."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(
        UsageError, match=r"no Ray cluster answers at '10\.0\.0\.1:6379'; .*RAY_AUTH_MODE=token"
    ):
        cluster.connect_to_ray()
    assert ray.inits == []


@pytest.mark.parametrize("only_existing", [False, True])
def test_a_cluster_that_was_started_by_hand_and_has_ended_is_forgotten(
    ray: FakeRay, tmp_path: Path, only_existing: bool
) -> None:
    started_by_hand(tmp_path, "10.0.0.2:6379")
    if only_existing:
        with pytest.raises(UsageError, match="no Ray cluster runs here"):
            cluster.connect_to_ray(only_existing=True)
        assert ray.inits == []
    else:
        assert cluster.connect_to_ray() is True
        assert [init["address"] for init in ray.inits] == ["local"]


def test_a_file_of_ray_start_without_an_address_names_no_cluster(ray: FakeRay, tmp_path: Path) -> None:
    started_by_hand(tmp_path, "")
    assert cluster.known_cluster() is None


def test_a_ray_that_was_started_for_jobs_ends_with_the_last_of_them(ray: FakeRay) -> None:
    """Else to stop one job would be the sudden end of all others of its program. The next job starts another."""
    for times in (1, 2):
        first, second = cluster.use_ray(), cluster.use_ray()
        first()
        assert ray.shutdowns == times - 1
        second()
        assert ray.shutdowns == times
    assert len(ray.inits) == 2


def test_a_cluster_of_others_goes_on_when_the_last_job_has_ended(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.at = "of the user's own"
    cluster.use_ray()()
    ray.at = None
    ray.answers = {"10.0.0.1:6379"}
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    cluster.use_ray()()
    assert ray.shutdowns == 0


@pytest.mark.parametrize("started", ["no Ray", "a `ray start` that has ended", "the Ray of another job"])
def test_a_detached_job_does_not_go_into_a_ray_that_ends_with_this_program(
    ray: FakeRay, tmp_path: Path, started: str
) -> None:
    if "ended" in started:
        started_by_hand(tmp_path, "10.0.0.2:6379")
    release = cluster.use_ray() if "job" in started else None
    with pytest.raises(UsageError, match="would end with this program: start one with `ray start --head`"):
        cluster.use_ray(detached=True)
    assert len(ray.inits) == (release is not None), "none is started in vain"
    if release is not None:
        release()
        assert ray.shutdowns == 1, "it is as if nobody had asked"


@pytest.mark.parametrize("of", ["the program", "others"])
def test_a_detached_job_goes_into_a_cluster_that_this_program_has_not_started_for_its_jobs(
    ray: FakeRay, tmp_path: Path, of: str
) -> None:
    if of == "others":
        ray.answers = {"10.0.0.1:6379"}
        started_by_hand(tmp_path, "10.0.0.1:6379")
    else:
        ray.at = "of the user's own"
    cluster.use_ray(detached=True)()
    assert ray.shutdowns == 0


def test_a_ray_that_gives_its_own_start_up_is_an_error_that_says_what_to_do(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raised = Exception("The current node timed out during startup. This could happen because …")

    def init(**_: Any) -> None:
        raise raised

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(StartTimeoutError, match="not started within 30 s: the Ray of this machine") as info:
        cluster.use_ray()
    assert "`ray start --head`" in str(info.value)
    assert str(tmp_path / "ray" / "session_latest" / "logs") in str(info.value)
    raised = Exception("of another kind")
    with pytest.raises(Exception, match="of another kind") as other:
        cluster.use_ray()
    assert type(other.value) is Exception


def test_a_ray_that_could_not_be_started_is_started_by_the_next_job(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(ray, "init", lambda **options: (_ for _ in ()).throw(RuntimeError("no memory")))
        with pytest.raises(RuntimeError):
            cluster.use_ray()
    release = cluster.use_ray()
    assert ray.at == "local"
    release()
    assert ray.shutdowns == 1
