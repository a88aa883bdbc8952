"""Options of a coordinator: who may give what, and what its machines get."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ConfigError
from kafka_actors.group.machines.embedded_protocol import GroupConfig
from kafka_actors.group.options import (
    CONSUMER_OPTIONS,
    GROUP_OPTIONS,
    defaults_of,
    group_config,
    read_options,
    read_strategies,
)


def made(**options: Any) -> GroupConfig:
    return group_config(ConsumerConfig(group_id="g", **options))


def test_a_config_and_single_options_exclude_each_other() -> None:
    config = ConsumerConfig(group_id="g")
    assert read_options(config, {}, GROUP_OPTIONS, "Coordinator") is config
    with pytest.raises(ConfigError, match="session_timeout_ms: give Coordinator a config or single options"):
        read_options(config, {"session_timeout_ms": 1}, GROUP_OPTIONS, "Coordinator")


def test_single_options_are_checked_as_a_consumers() -> None:
    config = read_options(None, {"group_id": "g", "session_timeout_ms": 20_000}, GROUP_OPTIONS, "Coordinator")
    assert (config.group_id, config.session_timeout_ms) == ("g", 20_000)
    with pytest.raises(ConfigError, match="session_timeout_ms"):
        read_options(None, {"group_id": "g", "session_timeout_ms": "long"}, GROUP_OPTIONS, "Coordinator")


def test_an_option_without_a_meaning_here_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(
        ConfigError, match=r"fetch_min_bytes: is no option of Coordinator; these are: .*group_id"
    ):
        read_options(None, {"group_id": "g", "fetch_min_bytes": 5}, GROUP_OPTIONS, "Coordinator")
    with pytest.raises(ConfigError, match="give it to the KafkaClient"):
        read_options(None, {"group_id": "g", "api_version": (2, 4)}, GROUP_OPTIONS, "Coordinator")


def test_names_of_other_clients_are_taken() -> None:
    options = {"group_id": "g", "api_version": None, "assignors": ["range"]}
    config = read_options(None, options, CONSUMER_OPTIONS, "Coordinator")
    assert list(config.partition_assignment_strategy) == ["range"]
    assert options == {"group_id": "g", "api_version": None, "assignors": ["range"]}, "the caller's stay"


def test_defaults_are_the_consumers() -> None:
    consumer = ConsumerConfig()
    assert defaults_of(["session_timeout_ms", "group_id"]) == {
        "session_timeout_ms": consumer.session_timeout_ms,
        "group_id": consumer.group_id,
    }


def test_a_group_is_needed() -> None:
    with pytest.raises(ConfigError, match="group_id: is missing"):
        group_config(ConsumerConfig())


def test_milliseconds_become_seconds() -> None:
    config = made(
        session_timeout_ms=20_000, heartbeat_interval_ms=2_000, request_timeout_ms=15_000, retry_backoff_ms=50
    )
    assert (config.session_timeout, config.heartbeat_interval) == (20.0, 2.0)
    assert (config.request_timeout, config.retry_backoff) == (15.0, 0.05)


@pytest.mark.parametrize(("interval_ms", "timeout_s"), [(2_000, 9.0), (12_000, 12.0)])
def test_a_heartbeat_may_take_a_fifth_of_the_session_and_an_interval_at_least(
    interval_ms: int, timeout_s: float
) -> None:
    assert made(session_timeout_ms=45_000, heartbeat_interval_ms=interval_ms).heartbeat_timeout == timeout_s


def test_a_rebalance_takes_as_long_as_a_poll_may_and_a_drain_half_of_that() -> None:
    config = ConsumerConfig(group_id="g", max_poll_interval_ms=80_000)
    plain = group_config(config)
    assert (plain.max_poll_interval, plain.rebalance_timeout, plain.revoke_timeout) == (80.0, 80.0, 40.0)
    given = group_config(config, rebalance_timeout_ms=10_000, revoke_timeout_ms=0)
    assert (given.max_poll_interval, given.rebalance_timeout, given.revoke_timeout) == (80.0, 10.0, 0.0)


def test_none_as_the_poll_interval_is_a_member_that_reports_no_progress() -> None:
    config = group_config(
        ConsumerConfig(group_id="g", max_poll_interval_ms=80_000), max_poll_interval_ms=None
    )
    assert (config.max_poll_interval, config.rebalance_timeout) == (None, 80.0)


def test_an_instance_id_is_the_configs_or_the_arguments_or_made() -> None:
    config = ConsumerConfig(group_id="g", group_instance_id="i")
    assert group_config(config).group_instance_id == "i"
    assert group_config(config, group_instance_id=None).group_instance_id is None
    one, other = (group_config(config, group_instance_id="auto").group_instance_id for _ in "ab")
    assert one is not None
    assert one.startswith("g-")
    assert one != other


def test_assignors_are_found_by_their_names() -> None:
    config = ConsumerConfig(group_id="g", partition_assignment_strategy=["range", "sticky"])
    assert [assignor.name for assignor in read_strategies(config)] == ["range", "sticky"]
    assert group_config(config).describe_strategy == "['range', 'sticky']"
    with pytest.raises(ConfigError, match="partition_assignment_strategy"):
        read_strategies(ConsumerConfig(group_id="g", partition_assignment_strategy=["rnage"]))
