"""Packages that import their parts when they are first used."""

import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    ["", ".admin", ".config", ".consumer", ".fetch", ".net", ".job", ".protocol", ".ray", ".sinks", ".spark"],
)
def test_a_package_offers_what_it_names_and_nothing_else(name: str) -> None:
    package = importlib.import_module(f"kafka_actors{name}")
    assert {*package._HOMES, "__version__"} == {*package.__all__, "__version__"}
    assert all(getattr(package, offered) is not None for offered in package.__all__)
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match=f"module 'kafka_actors{name}' has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018
