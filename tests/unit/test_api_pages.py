"""The API reference has all public names, and names nothing that isn't there."""

from __future__ import annotations

import functools
import importlib
import re
from types import ModuleType
from typing import Any

import pytest
from pages.blocks import ROOT

PAGES = ROOT / "docs" / "reference" / "api"
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)

PUBLIC = [
    "assignors",
    "kafka_actors",
    "kafka_actors.admin",
    "kafka_actors.backfill",
    "kafka_actors.cluster",
    "kafka_actors.consumer",
    "kafka_actors.coordinator",
    "kafka_actors.errors",
    "kafka_actors.events",
    "kafka_actors.identity",
    "kafka_actors.metrics",
    "kafka_actors.net",
    "kafka_actors.options",
    "kafka_actors.pipeline",
    "kafka_actors.producer",
    "kafka_actors.job",
    "kafka_actors.ray",
    "kafka_actors.spark",
    "kafka_actors.records",
    "kafka_actors.registry",
    "kafka_actors.schemas",
    "kafka_actors.sinks",
    "kafka_actors.telemetry",
    "kafka_actors.testing",
]


def found(path: str) -> Any:
    """What a directive names. Raises `ImportError` or `AttributeError`."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def directives() -> list[str]:
    return [path for page in sorted(PAGES.glob("*.md")) for path in DIRECTIVE.findall(page.read_text())]


def names_of(module: ModuleType) -> list[str]:
    """Where nothing is said, what is defined there under a name without an underscore."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    here = [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    return [name for name in here if not name.startswith("_")]


@pytest.mark.parametrize("path", directives())
def test_what_a_page_names_is_there(path: str) -> None:
    assert found(path) is not None


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_on_a_page(module: str) -> None:
    shown, here = directives(), found(module)
    missing = [
        name
        for name in names_of(here)
        if module not in shown
        and f"{module}.{name}" not in {*shown, *PUBLIC}
        and not is_shown(getattr(here, name))
    ]
    assert missing == []


def is_shown(thing: object) -> bool:
    """Under another of its names, or with the module that it is in. Of numbers that can't be told."""
    return callable(thing) and any(thing is each for each in shown_things())


@functools.cache
def shown_things() -> list[object]:
    named = [found(path) for path in directives()]
    modules = [each for each in named if isinstance(each, ModuleType)]
    return named + [getattr(module, name) for module in modules for name in names_of(module)]


def test_nothing_is_shown_twice() -> None:
    shown = directives()
    assert sorted(path for path in set(shown) if shown.count(path) > 1) == []


def test_every_package_is_public_or_known_to_be_not() -> None:
    packages = {f"kafka_actors.{path.parent.name}" for path in (ROOT / "kafka_actors").glob("*/__init__.py")}
    inner = {
        f"kafka_actors.{name}"
        for name in ("base", "cli", "config", "fetch", "group", "protocol", "reference", "status_page")
    }
    assert packages - inner - set(PUBLIC) == set()
