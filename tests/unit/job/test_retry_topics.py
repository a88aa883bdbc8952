"""Retry topics as a user names them, and what goes together with what."""

import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError
from kafka_actors.job.lanes import Slice
from kafka_actors.job.retry_topics import RetryTiers
from kafka_actors.types import TopicPartition

TOPICS = ka.RetryTopics("r", delays=("500ms", "10s", "1m"), dead_letter_topic="dead")
TIERS = TOPICS.tiers("t", ordering="key")


def test_there_is_a_topic_for_each_delay():
    assert TOPICS.topics == ["r-500ms", "r-10s", "r-1m"]
    assert RetryTiers("t", ["r-500ms", "r-10s", "r-1m"], [0.5, 10.0, 60.0], keep_order=True) == TIERS
    assert ka.RetryTopics("r", ["2h", "1d"], "dead").tiers("t", ordering="key").delays_s == [7200.0, 86400.0]


def test_order_is_kept_where_keys_have_one():
    assert not TOPICS.tiers("t", ordering="unordered").keep_order
    overtaking = ka.RetryTopics("r", ("1s",), "dead", keep_order=False)
    assert not overtaking.tiers("t", ordering="key").keep_order


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"delays": ()}, "no delays"),
        ({"delays": "10s"}, "delays='10s': accepts a list"),
        ({"delays": 10}, "delays=10: accepts a list"),
        ({"delays": ("10",)}, "the delay '10': accepts a number above 0"),
        ({"delays": ("0s",)}, "the delay '0s'"),
        ({"delays": (10,)}, "the delay 10:"),
        ({"delays": ("1s", "1s")}, "a topic twice among r-1s, r-1s"),
        ({"dead_letter_topic": "r-1s"}, "a topic twice among r-1s, r-1s"),
        ({"name": "a b"}, "has 'a b'"),
        ({"dead_letter_topic": None}, "has None"),
        ({"keep_order": "yes"}, "keep_order='yes', a str: accepts True or False"),
    ],
)
def test_a_wrong_value_is_named(wrong, reason):
    right = {"name": "r", "delays": ("1s",), "dead_letter_topic": "dead"}
    with pytest.raises(ConfigError, match=f"^on_error: .*{reason}"):
        ka.RetryTopics(**right | wrong)


def test_partitions_of_one_number_go_together_and_so_do_slices():
    whole, dealt = TopicPartition("t", 3), Slice("t", 3, 1, 2)
    assert TIERS.group(whole) == [whole, *(TopicPartition(topic, 3) for topic in TIERS.topics)]
    assert TIERS.group(dealt) == [dealt, *(Slice(topic, 3, 1, 2) for topic in TIERS.topics)]
    assert {TIERS.home(each) for each in TIERS.group(whole)} == {whole}
    assert {TIERS.home(each) for each in TIERS.group(dealt)} == {dealt}
    assert TIERS.groups([whole]) == frozenset(TIERS.group(whole))
    assert TIERS.homes(TIERS.group(whole)) == {whole}
    assert [TIERS.tier(each.topic) for each in TIERS.group(whole)] == [0, 1, 2, 3]


def test_without_retry_topics_each_partition_goes_by_itself():
    none, other = RetryTiers(), TopicPartition("t", 3)
    assert not none
    assert (none.group(other), none.home(other), none.homes([other])) == ([other], other, {other})
    assert none.misfits({"t": 3}) == ""


def test_what_a_source_that_has_grown_lacks_is_named_with_what_to_do():
    numbers, first, last = {"t": 4, "r-500ms": 4, "r-10s": 3, "r-1m": 2}, ("t", 2), ("t", 3)
    assert TIERS.lacking(TopicPartition("t", 1), numbers) == ""
    assert TIERS.lacking(TopicPartition(*first), numbers) == (
        "r-1m-2 is missing: retry topics need as many partitions as t, which has 4; add them, as by "
        "kafka-actors topics alter --topic r-1m --partitions 4"
    )
    assert TIERS.lacking(TopicPartition(*last), numbers).startswith("r-10s-3, r-1m-3 are missing: ")
    assert TIERS.lacking(TopicPartition("r-500ms", 3), numbers).startswith("r-10s-3, r-1m-3 are missing: ")
    assert TIERS.lacking(TopicPartition("t", 4), numbers) == "", "the source has none of that number either"
    assert TIERS.lacking(TopicPartition("t", 0), {}) == "", "nothing is known of any topic"
    overtaking = TOPICS.tiers("t", ordering="unordered")
    assert overtaking.lacking(TopicPartition(*last), numbers) == "", "it is read all the same"
    assert overtaking.lacking(TopicPartition("r-10s", 3), numbers) != ""


def test_missing_topics_and_other_numbers_of_partitions_are_named_with_what_to_do():
    assert TIERS.misfits({"t": 4, "r-500ms": 4, "r-10s": 4, "r-1m": 4}) == ""
    assert TIERS.misfits({"t": 4, "r-500ms": 4, "r-1m": 3}) == (
        "needs topics with as many partitions as t, which has 4: r-10s is missing, r-1m has 3; create them, as by "
        "kafka-actors topics create --topic r-10s --partitions 4"
    )
    fewer = TIERS.misfits({"t": 4, "r-500ms": 3, "r-10s": 4, "r-1m": 4})
    assert fewer.endswith(
        "r-500ms has 3; add partitions, as by kafka-actors topics alter --topic r-500ms --partitions 4"
    )
    more = TIERS.misfits({"t": 4, "r-500ms": 6, "r-10s": 6, "r-1m": 4})  # which grow before their source
    assert more.endswith(
        "r-10s has 6; add partitions, as by kafka-actors topics alter --topic t --partitions 6"
    )
