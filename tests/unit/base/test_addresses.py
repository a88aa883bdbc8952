"""Addresses and durations as people write them."""

import pytest

from kafka_actors.base.addresses import (
    format_address,
    parse_address,
    parse_bootstrap_servers,
    parse_listening,
)
from kafka_actors.base.timeouts import parse_iso8601
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
        ("[fe80::1%eth0]:9093", ("fe80::1%eth0", 9093)),
        ("::ffff:10.0.0.1", ("::ffff:10.0.0.1", 9092)),
        ("SASL_SSL://[::1]:9093", ("::1", 9093)),
        ("10.0.0.1:9093", ("10.0.0.1", 9093)),
        ("kafka_1.my-net.:9093", ("kafka_1.my-net.", 9093)),
        ("кафка.рф:9093", ("кафка.рф", 9093)),
        ("kafka:00080", ("kafka", 80)),
    ],
)
def test_an_address(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no host"),
        (":9092", "no host"),
        ("PLAINTEXT://", "no host"),
        ("a b:1", "'a b' is not a valid host name"),
        ("kafka :9092", "'kafka ' is not a valid host name"),
        ("kafka: 9092", "' 9092' is not a port"),
        ("kafka:90 92", "'90 92' is not a port"),
        ("kafka:", "'' is not a port"),
        ("[::1]:", "'' is not a port"),
        ("kafka:0", "'0' is not a port"),
        ("kafka:65536", "'65536' is not a port"),
        ("kafka:-1", "'-1' is not a port"),
        ("kafka:x", "'x' is not a port"),
        ("kafka:²", "'²' is not a port"),
        ("kafka:" + "9" * 5_000, "is not a port"),
        ("[::1", "needs the form [address]:port"),
        ("[::1]9092", "needs the form [address]:port"),
        ("[]:9092", "needs the form [address]:port"),
        ("[kafka]:9092", "needs the form [address]:port"),
        ("[10.0.0.1]:9092", "needs the form [address]:port"),
        ("::1]", "no host"),
        ("a:b:c", "'b:c' is not a port"),
        ("k1:9092;k2:9092", "'9092;k2:9092' is not a port"),
        ("k1;k2", "'k1;k2' is not a valid host name"),
        ("http://kafka:9092/topics", "'9092/topics' is not a port"),
        ("kafka/", "'kafka/' is not a valid host name"),
        ("user@kafka:9092", "'***@kafka' is not a valid host name"),
        ("'kafka'", "is not a valid host name"),
        ("ka\0fka", "is not a valid host name"),
        ("kafka\u200b:9092", "is not a valid host name"),
        ("ka\ud800", "is not a valid host name"),
    ],
)
def test_what_is_no_address_is_refused_by_name(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert caught.value.option == "bootstrap_servers"
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


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


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("8000", ("localhost", 8000)),
        (":8000", ("localhost", 8000)),
        (" :0 ", ("localhost", 0)),
        ("0.0.0.0:8000", ("0.0.0.0", 8000)),
        ("kafka-1.svc:65535", ("kafka-1.svc", 65535)),
        ("[::]:8000", ("::", 8000)),
        ("[::1]:8000", ("::1", 8000)),
    ],
)
def test_where_to_listen_is_this_machine_unless_a_host_is_given(text, where):
    assert parse_listening("--status", text) == where


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        ":",
        "host",
        "host:x",
        ":70000",
        "::1:8000",
        "[::1]",
        "[x]:8000",
        "http://h:80",
        "a b:80",
        ":٨",
    ],
)
def test_where_nobody_can_listen_is_an_error_that_names_the_option(text):
    with pytest.raises(ConfigError, match=r"--status: is .*: give PORT, :PORT or HOST:PORT"):
        parse_listening("--status", text)
