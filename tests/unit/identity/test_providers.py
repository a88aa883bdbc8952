"""Providers that are named by an import path."""

import sys

import pytest

from kafka_actors.errors import ConfigError, SaslError
from kafka_actors.identity.providers import made, sdk


class Tokens:
    def __init__(self, *, audience="a", client_secret="", count=0):
        self.given = audience, client_secret, count

    class Inner:
        pass


def broken():
    raise ValueError("no\nluck")


@pytest.fixture
def path(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokens_of_mine", sys.modules[__name__])
    return "tokens_of_mine:Tokens"


def test_a_provider_is_made_once_for_its_arguments(path):
    first = made(path, {"audience": "b", "count": 2})
    assert first.given == ("b", "", 2)
    assert made(path, {"count": 2, "audience": "b"}) is first
    assert made(path, None) is not first
    assert isinstance(made(f"{path}.Inner", None), Tokens.Inner)


def test_references_are_looked_up_where_it_is_made(path, monkeypatch):
    monkeypatch.setenv("MINE", "hush")
    first = made(path, {"client_secret": "${env:MINE}"})
    assert first.given[1] == "hush"
    monkeypatch.setenv("MINE", "new")
    assert made(path, {"client_secret": "${env:MINE}"}).given[1] == "new"
    monkeypatch.delenv("MINE")
    with pytest.raises(ConfigError, match="no such variable"):
        made(path, {"client_secret": "${env:MINE}"})


@pytest.mark.parametrize(
    ("named", "arguments", "match"),
    [
        ("no_such_module:Tokens", {}, "no_such_module:Tokens can't be made: ModuleNotFoundError"),
        ("tokens_of_mine:Nobody", {}, "AttributeError"),
        ("tokens_of_mine:Tokens", {"colour": "hush"}, "made with colour: TypeError"),
        ("tokens_of_mine:broken", {}, "ValueError: no luck"),
    ],
)
def test_one_that_cannot_be_made_is_one_line(path, named, arguments, match):
    with pytest.raises(SaslError, match=match) as caught:
        made(named, arguments)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "extra"), [("botocore.session", "aws"), ("azure.identity", "azure"), ("google.auth", "gcp")]
)
def test_an_sdk_that_is_missing_names_what_installs_it(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SaslError, match=rf'pip install "kafka-actors\[{extra}\]"') as caught:
        sdk(module, extra)
    assert str(caught.value).startswith(f"{module} can't be loaded here")
    assert "\n" not in str(caught.value)
