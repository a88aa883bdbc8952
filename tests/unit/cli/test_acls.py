"""ACLs as the command line names them."""

from kafka_actors.admin import AclBinding, AclBindingFilter
from kafka_actors.cli.acls import AclChoice


def test_an_acl_is_added_for_each_resource_principal_and_operation() -> None:
    choice = AclChoice(
        topics=("orders,clicks",),
        groups=("g",),
        allowed=("User:a",),
        denied=("User:b",),
        operations=("read", "Describe"),
    )
    made = choice.bindings()
    assert len(made) == 3 * 2 * 2
    assert AclBinding("TOPIC", "clicks", "User:b", "DESCRIBE", "DENY") in made
    assert {acl.pattern_type for acl in made} == {"LITERAL"}
    [cluster] = AclChoice(
        cluster=True, allowed=("User:a",), operations=("alter",), hosts=("10.0.0.1",)
    ).bindings()
    assert cluster == AclBinding("CLUSTER", "kafka-cluster", "User:a", "ALTER", host="10.0.0.1")


def test_a_filter_takes_all_of_what_is_not_named() -> None:
    assert AclChoice().filters() == [AclBindingFilter()]
    assert AclChoice(topics=("orders",), pattern_type="any").filters() == [
        AclBindingFilter("TOPIC", "orders")
    ]
    matching = AclChoice(topics=("orders",), operations=("write",), pattern_type="match").filters()
    assert matching == [AclBindingFilter("TOPIC", "orders", operation="WRITE", pattern_type="MATCH")]
    prefixed = AclChoice(allowed=("User:a",), pattern_type="prefixed").filters()
    assert prefixed == [
        AclBindingFilter(principal="User:a", permission_type="ALLOW", pattern_type="PREFIXED")
    ]
