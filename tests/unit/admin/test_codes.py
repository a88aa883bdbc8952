import pytest

from kafka_actors.admin.machines.codes import (
    CONFIG_RESOURCES,
    CONFIG_SOURCES,
    OPERATIONS,
    RESOURCE_TYPES,
    code_of,
    name_of,
)
from kafka_actors.errors import UsageError


def test_codes_are_javas() -> None:
    """`AclOperation`, `ResourceType`, `DescribeConfigsResponse.ConfigSource` of kafka-clients 4.4.0."""
    assert {OPERATIONS[name] for name in ("ALL", "READ", "TWO_PHASE_COMMIT")} == {2, 3, 15}
    assert (RESOURCE_TYPES["TOPIC"], RESOURCE_TYPES["USER"]) == (2, 7)
    assert (CONFIG_SOURCES["DYNAMIC_TOPIC_CONFIG"], CONFIG_SOURCES["DYNAMIC_GROUP_CONFIG"]) == (1, 8)


def test_a_name_has_a_code_and_back() -> None:
    for name, code in OPERATIONS.items():
        assert (code_of(OPERATIONS, name, "operation"), name_of(OPERATIONS, code)) == (code, name)
    assert name_of(OPERATIONS, 99) == "UNKNOWN"


@pytest.mark.parametrize("value", ["topic", "UNKNOWN", 2, None])
def test_another_value_is_refused_with_the_names_that_there_are(value: object) -> None:
    with pytest.raises(UsageError, match=r"^type is .*: accepts TOPIC, BROKER, BROKER_LOGGER"):
        code_of(CONFIG_RESOURCES, value, "type")
