"""Which Ray cluster a job joins: the one that is named, the one that `ray start` made here, or one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_actors.errors import UsageError
from kafka_actors.ray import cluster


class Ray:
    """Stands for the module `ray`. `alive`: whether the cluster to be joined answers."""

    def __init__(self, alive: bool = True) -> None:
        self.alive = alive
        self.addresses: list[str | None] = []

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str | None = None, **_: Any) -> None:
        self.addresses.append(address)
        if address != "local" and not self.alive:
            raise ConnectionError("nobody there")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ray:
    made = Ray()
    monkeypatch.setattr(cluster, "ray", made)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return made


@pytest.fixture
def started_by_hand(tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379")


@pytest.mark.usefixtures("started_by_hand")
def test_the_cluster_that_was_started_here_is_found_by_ray_itself_which_then_takes_its_token(
    ray: Ray,
) -> None:
    assert cluster.known_cluster() == "10.0.0.1:6379"
    assert not cluster.connect_to_ray()
    assert ray.addresses == [None]


@pytest.mark.usefixtures("started_by_hand")
def test_a_cluster_that_is_gone_gives_way_to_a_local_one(ray: Ray) -> None:
    ray.alive = False
    assert cluster.connect_to_ray()
    assert ray.addresses == [None, "local"]


def test_without_any_a_local_one_is_started_unless_one_has_to_be_there(ray: Ray) -> None:
    with pytest.raises(UsageError, match="no Ray cluster runs here; set RAY_ADDRESS"):
        cluster.connect_to_ray(only_existing=True)
    assert cluster.connect_to_ray()
    assert ray.addresses == ["local"]


@pytest.mark.usefixtures("started_by_hand")
def test_a_named_cluster_that_does_not_answer_is_an_error_that_thinks_of_its_token(
    ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert not cluster.connect_to_ray()
    ray.alive = False
    with pytest.raises(
        UsageError, match=r"^no Ray cluster answers at 'head:6379'; .* or set RAY_AUTH_MODE=token"
    ):
        cluster.connect_to_ray()
    assert ray.addresses == ["head:6379"] * 2
