"""Names and patterns of topics are checked as Kafka checks them."""

import re

import pytest

from kafka_actors.base.topics import check_dlq_topic, check_pattern, check_results, check_topic, check_topics
from kafka_actors.errors import ConfigError


@pytest.mark.parametrize("name", ["a", "orders.v1", "A-b_c.0", "x" * 249, "..."])
def test_legal_names(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ä", None, 5, b"orders"])
def test_illegal_names(name: object) -> None:
    with pytest.raises(ConfigError, match="a topic's name has 1 to 249 of the characters"):
        check_topic(name)


def test_several_names_in_one_text_are_shown_as_a_list() -> None:
    with pytest.raises(ConfigError, match=r"results: has 'a,b': several topics are a list, \['a', 'b'\]"):
        check_topic("a,b", "results")


def test_a_list_of_names() -> None:
    assert check_topics(iter(["a", "b", "a"])) == {"a", "b"}
    for wrong in ("orders", b"orders", None, 5):
        with pytest.raises(ConfigError, match="accepts a list of topic names"):
            check_topics(wrong)  # type: ignore[arg-type]


def test_patterns() -> None:
    assert check_pattern("a.*").fullmatch("abc")
    assert check_pattern(re.compile("a.*", re.IGNORECASE)).fullmatch("ABC")
    with pytest.raises(ConfigError, match="not a regular expression"):
        check_pattern("a(")
    with pytest.raises(ConfigError, match="accepts a regular expression, a str"):
        check_pattern(re.compile(b"a"))  # type: ignore[arg-type]


@pytest.mark.parametrize("check", [check_dlq_topic, check_results])
def test_a_topic_that_is_read_is_not_written_to(check) -> None:  # type: ignore[no-untyped-def]
    check("dead", "option", ["orders"], None)
    check("dead", "option", None, "orders.*")
    with pytest.raises(ConfigError, match=r"option: is 'orders', which is read here: .* for ever"):
        check("orders", "option", ["orders"], None)
    with pytest.raises(ConfigError, match=r"which matches the pattern 'ord.*' that is read here"):
        check("orders", "option", None, "ord.*")
