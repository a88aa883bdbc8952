"""Settings by Kafka's names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_actors import errors
from kafka_actors.testing import fake_kafka
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.settings import (
    TOPIC_CONFIGS,
    FakeBrokerSettings,
    broker_settings,
    check_topic_configs,
    feature_level,
    log_limits,
    min_insync_replicas,
)


def test_broker_settings_have_kafka_s_dotted_names_and_take_text() -> None:
    settings = broker_settings({"group.max.size": "5", "auto_create_topics_enable": "true"})
    assert settings.group_max_size == 5
    assert settings.auto_create_topics_enable is True
    with pytest.raises(ValueError, match=r"no setting log\.dirs|no setting log_dirs"):
        broker_settings({"log.dirs": "/tmp"})
    with pytest.raises(ValueError, match="group_max_size"):
        broker_settings({"group.max.size": "many"})


def test_no_setting_of_brokers_is_accepted_and_ignored() -> None:
    code = "".join(path.read_text() for path in Path(fake_kafka.__file__).parent.rglob("*.py"))
    read = set(re.findall(r"\.(\w+)\b", code))
    assert set(FakeBrokerSettings.__struct_fields__) - read == set()


def test_a_cluster_has_the_newest_features_of_its_release_unless_told() -> None:
    assert (feature_level({}, (3, 9)), feature_level({}, (4, 0))) == (0, 2)
    assert feature_level({"transaction.version": 1}, (4, 1)) == 1
    with pytest.raises(ValueError, match=r"transaction\.version is 1: Kafka 3\.9 has 0 to 0"):
        feature_level({"transaction.version": 1}, (3, 9))
    with pytest.raises(ValueError, match=r"no feature group\.version"):
        feature_level({"group.version": 1}, (4, 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", "1"),
        ("cleanup.policy", "never"),
        ("retention.ms", "soon"),
        ("min.insync.replicas", "0"),
        ("delete.retention.ms", "-5"),
        ("min.compaction.lag.ms", "1.5"),
        ("min.cleanable.dirty.ratio", "2"),
        ("preallocate", "perhaps"),
        ("retention.ms", None),
    ],
)
def test_settings_that_no_topic_has_are_refused(name: str, value: str | None) -> None:
    with pytest.raises(Refused) as refused:
        check_topic_configs({name: value})
    assert refused.value.code == errors.InvalidConfigError.code


def test_all_defaults_are_values_that_a_topic_can_have() -> None:
    check_topic_configs(TOPIC_CONFIGS)


def test_a_topic_s_limits_are_its_own_or_the_release_s() -> None:
    limits = log_limits(
        {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}, (4, 1)
    )
    assert limits.compacted
    assert limits.log_append_time
    assert limits.timestamp_after_max_ms == 3_600_000
    assert log_limits({}, (3, 9)).timestamp_after_max_ms == 2**63 - 1
    assert min_insync_replicas({"min.insync.replicas": "2"}) == 2
