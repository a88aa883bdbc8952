"""Arguments and results of the admin's calls: their texts, their order, and what can be done with them."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from kafka_actors.admin import (
    AclBinding,
    AclBindingFilter,
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    results,
)

READ = AclBinding("TOPIC", "orders", "User:a", "READ")


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (ConfigResource("TOPIC", "orders"), "TOPIC orders"),
        (ConfigResource("BROKER", "1"), "BROKER 1"),
        (ConfigResource("BROKER", ""), "BROKER default"),
    ],
)
def test_a_resource_is_named_by_its_type_and_the_defaults_of_all_brokers_are_no_empty_name(
    resource: ConfigResource, text: str
) -> None:
    assert str(resource) == text


@pytest.mark.parametrize(
    ("acl", "text"),
    [
        (READ, "ALLOW READ on TOPIC orders to User:a from *"),
        (
            AclBinding("GROUP", "g-", "User:b", "ALL", "DENY", "PREFIXED", "10.0.0.1"),
            "DENY ALL on GROUP prefix g- to User:b from 10.0.0.1",
        ),
    ],
)
def test_an_acl_says_who_may_do_what_with_which_resource(acl: AclBinding, text: str) -> None:
    assert str(acl) == text


def test_acls_have_an_order_and_those_that_say_the_same_are_one() -> None:
    """`delete_acls` returns them sorted, and each once where several filters take it."""
    later = AclBinding("TOPIC", "orders", "User:b", "READ")
    group = AclBinding("GROUP", "z", "User:z", "READ")
    same = AclBinding("TOPIC", "orders", "User:a", "READ", "ALLOW", "LITERAL", "*")
    assert sorted({later, READ, group, same}) == [group, READ, later]


def test_a_filter_without_a_field_takes_every_value_of_every_field_of_an_acl() -> None:
    assert AclBindingFilter.__struct_fields__ == AclBinding.__struct_fields__
    assert set(msgspec.structs.astuple(AclBindingFilter())) == {None}


@pytest.mark.parametrize(
    ("source", "default"),
    [
        ("DEFAULT_CONFIG", True),
        ("DYNAMIC_TOPIC_CONFIG", False),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", False),
        ("STATIC_BROKER_CONFIG", False),
        ("UNKNOWN", False),
    ],
)
def test_only_kafkas_own_value_is_a_default(source: str, default: bool) -> None:
    """The default of all brokers of a cluster is set by its operator: it is none of Kafka's."""
    entry = ConfigEntry("retention.ms", "1", source, "LONG", False, False)
    assert entry.is_default is default


def test_a_change_of_a_setting_sets_it_unless_it_says_otherwise() -> None:
    assert AlterConfigOp("a", "1") == AlterConfigOp("a", "1", "SET")
    assert AlterConfigOp("a") != AlterConfigOp("a", op="DELETE")


def test_a_topic_leaves_to_the_broker_what_nobody_says() -> None:
    topic = NewTopic("orders")
    assert (topic.num_partitions, topic.replication_factor, topic.replica_assignment) == (None, None, None)
    assert topic.configs == {}


KINDS: dict[str, tuple[Any, ...]] = {
    "AclBinding": ("TOPIC", "orders", "User:a", "READ"),
    "ConfigResource": ("TOPIC", "orders"),
    "PartitionLag": ("g", "t", 0, None, 1, 3, 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_values_that_nobody_changes(kind: str) -> None:
    made, again = (getattr(results, kind)(*KINDS[kind]) for _ in range(2))
    assert {made: 1}[again] == 1
    with pytest.raises(AttributeError, match="immutable"):
        setattr(made, made.__struct_fields__[0], "other")
    assert pickle.loads(pickle.dumps(made)) == made, "a Ray task may return it"
