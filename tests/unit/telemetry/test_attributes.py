"""Kinds of reasons, and attributes of values."""

import re
from pathlib import Path

import pytest

from kafka_actors.errors import ConfigError, KafkaTimeoutError, UnknownTopicOrPartitionError
from kafka_actors.fetch.machines.partition_state import FetchPartition, FetchState, PartitionStart
from kafka_actors.telemetry.attributes import error_type, kind_of_reason, of_partition, with_error
from kafka_actors.telemetry.instruments import BY_NAME, CONSUMED_MESSAGES
from kafka_actors.types import TopicPartition

KINDS = {
    "": "",
    "paused": "paused",
    "draining": "draining",
    "buffer full": "buffer_full",
    "no leader": "no_leader",
    "open transaction": "open_transaction",
    "no lease": "no_lease",
    "waits for its turn: behind orders-3 and 2 others": "waits_for_its_turn",
    "broker 3: throttled": "broker",
    "backing off: no answer in 30 s": "backing_off",
    "awaiting offset (no answer in 30 s)": "awaiting_offset",
    "retrying: offset 7, ValueError": "retrying",
    "failed: orders-3 at offset 7: CRC": "failed",
}


@pytest.mark.parametrize(("reason", "kind"), KINDS.items())
def test_a_reasons_kind_is_what_comes_first(reason, kind):
    assert kind_of_reason(reason) == kind


def test_each_kind_is_on_the_page_of_metrics_and_in_the_failure_guide():
    docs = Path(__file__).parents[3] / "docs"
    listed = (docs / "how-to/telemetry.md").read_text().split("Reasons of `partition.blocked`: ")[1]
    kinds = set(re.findall(r"`(\w+)`", listed.split("What each means")[0]))
    declared = kind_of_reason.__doc__.split("Kinds:")[1]
    assert {kind for kind in kinds if "_" in kind} == set(re.findall(r"[a-z]+(?:_[a-z]+)+", declared))
    rows = (docs / "failures.md").read_text().split("## A partition stands still")[1].split("\n## ")[0]
    quoted = [
        text for row in re.findall(r"^\| (`.*?) \|", rows, re.M) for text in re.findall(r"`(.*?)`", row)
    ]
    assert kinds - {"no_worker"} <= {kind_of_reason(text.replace("broker …", "broker 3")) for text in quoted}


def partition(**fields):
    made = FetchPartition(TopicPartition("t", 0), PartitionStart(offset=5))
    made.state, made.leader, made.position = FetchState.FETCHING, 1, 5
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, ""),
        ({"paused": True}, "paused"),
        ({"leader": -1}, "no_leader"),
        ({"leader": -1, "state": FetchState.VALIDATING, "trouble": "x"}, "no_leader"),
        ({"leader": -1, "state": FetchState.AWAITING_OFFSET}, "no_leader"),
        ({"leader": -1, "state": FetchState.AT_END}, "at_end"),
        ({"leader": -1, "paused": True}, "paused"),
        ({"draining": True}, "draining"),
        ({"retry_at": 9.0, "trouble": "Not leader: 6"}, "backing_off"),
        ({"error": KafkaTimeoutError("Something: else")}, "failed"),
        ({"state": FetchState.VALIDATING, "trouble": "x"}, "validating"),
        ({"state": FetchState.AWAITING_OFFSET}, "awaiting_offset"),
    ],
)
def test_every_reason_of_the_fetcher_has_a_kind(fields, kind):
    assert kind_of_reason(partition(**fields).reason(now=1.0)) == kind


def test_a_partition_waits_for_a_transaction_where_only_its_records_are_left():
    waiting = partition(last_stable_offset=5, high_watermark=9)
    assert waiting.waits_for_a_transaction(read_committed=True)
    assert not waiting.waits_for_a_transaction(read_committed=False)
    assert not partition(last_stable_offset=6, high_watermark=9).waits_for_a_transaction(True)
    assert not partition(last_stable_offset=5, high_watermark=5).waits_for_a_transaction(True)


# ---------------------------------------------------------------- attributes

A = of_partition("g", "t", 0, "process")


def test_errors_are_named_as_kafka_names_them():
    class Mine(ValueError): ...

    assert error_type(UnknownTopicOrPartitionError()) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_type(ValueError("the text of a user")) == "ValueError"
    assert error_type(ConfigError("a", "b")) == "kafka_actors.errors.ConfigError"
    assert error_type(Mine()).endswith("test_errors_are_named_as_kafka_names_them.Mine")
    assert with_error(A, None) == A
    assert with_error((), ValueError()) == (("error.type", "ValueError"),)


def test_every_attribute_that_is_given_is_in_the_table():
    assert {key for key, _ in A} <= set(BY_NAME[CONSUMED_MESSAGES.name].attributes)
