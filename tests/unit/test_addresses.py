"""Addresses and durations as people write them."""

import pytest

from kafka_actors.addresses import format_address, parse_address, parse_bootstrap_servers
from kafka_actors.durations import parse_iso8601
from kafka_actors.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka", ("kafka", 9092)),
        ("kafka:19092", ("kafka", 19092)),
        (" kafka:9093 ", ("kafka", 9093)),
        ("PLAINTEXT://kafka:9093", ("kafka", 9093)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("fe80::1", ("fe80::1", 9092)),
    ],
)
def test_an_address(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":9092", "a b:1", "kafka:0", "kafka:65536", "kafka:x", "[::1", "[::1]9092", "kafka:²"]
)
def test_what_is_no_address_is_refused_by_name(text):
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert caught.value.option == "bootstrap_servers"


def test_a_list_or_a_text_and_a_trailing_comma():
    assert parse_bootstrap_servers("a, b:1,") == parse_bootstrap_servers(["a", "b:1"]) == ["a:9092", "b:1"]
    assert format_address("::1", 9) == "[::1]:9"


@pytest.mark.parametrize("value", [5, None, [5], {"a": 1}])
def test_other_types_are_refused(value):
    with pytest.raises(ConfigError):
        parse_bootstrap_servers(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT1H30M", 5400), ("P7D", 604_800), ("P1DT1S", 86_401), ("pt0.5s", 0.5), ("PT0S", 0)],
)
def test_a_duration(text, seconds):
    assert parse_iso8601(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1M", "PT-1S", "P1DT"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_iso8601(text)
