"""Assignors by name, by entry point, by object."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import assignors
from assignors import Assignment, Assignor, Member

PLUGIN = """
class Lonely:
    name = "lonely"
    protocol = "eager"

    def assign(self, partitions, members, *, racks=None):
        return {m: [] for m in members}


class Nameless:
    pass


class Impostor:
    name = "range"
    protocol = "eager"

    def assign(self, partitions, members, *, racks=None):
        return {}
"""
ENTRY_POINTS = """
[kafka_actors.assignors]
lonely = lonely_plugin:Lonely
nameless = lonely_plugin:Nameless
broken = no_such_module_anywhere:Assignor
missing = lonely_plugin:NoSuchClass
range = lonely_plugin:Impostor
"""


class Mine:
    name = "mine"
    protocol = "eager"

    def assign(
        self, partitions: Mapping[str, Iterable[int]], members: Mapping[str, Member], *, racks: object = None
    ) -> Assignment:
        return {m: [] for m in members}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that registers assignors."""
    (tmp_path / "lonely_plugin.py").write_text(PLUGIN)
    info = tmp_path / "lonely_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lonely-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lonely_plugin", raising=False)


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_kafkas_names(name: str) -> None:
    assert name in assignors.available()
    assert assignors.get(name).name == name
    assert isinstance(assignors.get(name), Assignor)


def test_an_unknown_name_says_what_exists() -> None:
    with pytest.raises(
        ValueError, match=r"unknown assignor 'stick'; there are .*cooperative-sticky, .*range"
    ):
        assignors.get("stick")


@pytest.mark.usefixtures("plugin")
def test_entry_points_add_names_but_do_not_replace_kafkas() -> None:
    assert {"lonely", "sticky"} <= set(assignors.available())
    assert assignors.get("lonely").assign({}, {"a": Member([])}) == {"a": []}
    assert isinstance(assignors.get("range"), assignors.RangeAssignor)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("name", ["broken", "missing"])
def test_an_entry_point_that_cannot_be_loaded_says_why(name: str) -> None:
    with pytest.raises(ValueError, match=f"assignor '{name}' cannot be loaded from"):
        assignors.get(name)


@pytest.mark.usefixtures("plugin")
def test_an_entry_point_that_is_no_assignor_is_refused() -> None:
    with pytest.raises(TypeError, match="lonely_plugin:Nameless, registered as 'nameless', is no assignor"):
        assignors.get("nameless")


def test_objects_pass_and_classes_are_made() -> None:
    mine = Mine()
    assert assignors.get(mine) is mine  # type: ignore[arg-type]
    assert isinstance(assignors.get(Mine), Mine)  # type: ignore[arg-type]


def test_an_object_that_is_no_assignor_is_refused() -> None:
    with pytest.raises(TypeError, match="is no assignor"):
        assignors.get(object())  # type: ignore[arg-type]
    lazy = Mine()
    lazy.protocol = "lazy"
    with pytest.raises(TypeError, match="protocol 'lazy'"):
        assignors.get(lazy)  # type: ignore[arg-type]
