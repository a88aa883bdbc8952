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


def test_a_reader_of_ray_data_is_said_to_be_something_else_here() -> None:
    package = importlib.import_module("kafka_actors.ray")
    with pytest.raises(
        AttributeError, match=r"no read_kafka.*Pipeline\.read_kafka\(…\)\.on_ray\(\)"
    ) as caught:
        package.read_kafka  # noqa: B018
    assert "\n" not in str(caught.value)
    assert not hasattr(package, "read_kafka")
