"""ACLs in requests and responses, and what the admin asks, with a client whose answers are written down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.answering import AnsweringClient

from kafka_actors.admin import AclBinding, AclBindingFilter
from kafka_actors.admin.acls import AclRequests
from kafka_actors.admin.machines.acls import bindings_of_resource, creations_of, filters_of
from kafka_actors.admin.requests import CallDeadline
from kafka_actors.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    NotControllerError,
    ProtocolError,
    SecurityDisabledError,
    UsageError,
)
from kafka_actors.protocol import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from kafka_actors.protocol.messages.create_acls import AclCreation, AclCreationResult
from kafka_actors.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
)
from kafka_actors.protocol.messages.describe_acls import AclDescription, DescribeAclsResource

READ = AclBinding("TOPIC", "orders", "User:bob", "READ")
JOIN = AclBinding("GROUP", "scorer", "User:bob", "READ", "DENY", "PREFIXED", "10.0.0.1")
ALL = AclBindingFilter()


def test_an_acl_has_javas_codes() -> None:
    assert creations_of([READ, JOIN]) == {
        READ: AclCreation(2, "orders", 3, "User:bob", "*", 3, 3),
        JOIN: AclCreation(3, "scorer", 4, "User:bob", "10.0.0.1", 3, 2),
    }


def test_a_filter_takes_every_value_of_what_it_does_not_name() -> None:
    assert filters_of([ALL]) == {ALL: DeleteAclsFilter(1, None, 1, None, None, 1, 1)}
    some = AclBindingFilter("TOPIC", "orders", pattern_type="MATCH", operation="WRITE")
    assert filters_of([some]) == {some: DeleteAclsFilter(2, "orders", 2, None, None, 4, 1)}


def test_a_response_is_read_back_and_newer_codes_are_unknown() -> None:
    resource = DescribeAclsResource(3, "scorer", 4, [AclDescription("User:bob", "10.0.0.1", 3, 2)])
    assert bindings_of_resource(resource) == [JOIN]
    newer = DescribeAclsResource(99, "x", 3, [AclDescription("User:bob", "*", 99, 3)])
    assert bindings_of_resource(newer) == [AclBinding("UNKNOWN", "x", "User:bob", "UNKNOWN")]


def test_an_acl_is_a_sentence() -> None:
    assert str(READ) == "ALLOW READ on TOPIC orders to User:bob from *"
    assert str(JOIN) == "DENY READ on GROUP prefix scorer to User:bob from 10.0.0.1"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (AclBinding("topic", "t", "User:b", "READ"), "resource_type is 'topic', a str: accepts TOPIC, GROUP"),
        (AclBinding("TOPIC", "", "User:b", "READ"), "resource_name is '', a str: give a name"),
        (
            AclBinding("TOPIC", "t", "bob", "READ"),
            "principal is 'bob': give its type and name, such as 'User",
        ),
        (AclBinding("TOPIC", "t", "User:b", "Read"), "operation is 'Read', a str: accepts ALL, READ, WRITE"),
        (AclBinding("TOPIC", "t", "User:b", "READ", "YES"), "permission_type is 'YES', a str: accepts DENY"),
        (
            AclBinding("TOPIC", "t", "User:b", "READ", "DENY", "MATCH"),
            "pattern_type is 'MATCH'.*accepts LITERAL",
        ),
        (AclBinding("CLUSTER", "c", "User:b", "ALTER"), "resource_name is 'c': that of a CLUSTER is 'kafka-"),
        ("orders", "acls has 'o', a str: give AclBinding"),
    ],
)
def test_what_cannot_be_an_acl_is_named(wrong: Any, says: str) -> None:
    with pytest.raises((TypeError, UsageError), match=says):
        creations_of([wrong] if isinstance(wrong, AclBinding) else wrong)


def test_one_acl_is_no_list_of_them() -> None:
    with pytest.raises(TypeError, match="acls is an AclBinding: give a list of them"):
        creations_of(READ)  # type: ignore[arg-type]


# ---------------------------------------------------------------- requests


def _create(client: Any, *acls: AclBinding) -> Any:
    return asyncio.run(AclRequests(client).create(creations_of(acls), CallDeadline(client)))


def test_an_acl_that_is_refused_takes_nothing_from_the_others_and_what_may_pass_is_asked_again() -> None:
    client = AnsweringClient(
        CreateAclsResponse(results=[AclCreationResult(41, "moved"), AclCreationResult(42, "bad host")]),
        CreateAclsResponse(results=[AclCreationResult()]),
    )
    answers = _create(client, READ, JOIN)
    assert answers[READ] is None
    assert isinstance(answers[JOIN], InvalidRequestError)
    assert str(answers[JOIN]) == f"INVALID_REQUEST (42) in answer to CreateAcls: {JOIN}: bad host"
    assert [len(request.creations) for request in client.asked] == [2, 1]


def test_a_response_without_an_answer_for_each_is_an_error() -> None:
    answers = _create(AnsweringClient(CreateAclsResponse(results=[AclCreationResult()])), READ, JOIN)
    assert answers[READ] is None
    assert isinstance(answers[JOIN], ProtocolError)


def test_brokers_without_an_authorizer_are_said_to_need_one() -> None:
    client = AnsweringClient(DescribeAclsResponse(error_code=54, error_message="No Authorizer"))
    [wanted] = filters_of([ALL]).values()
    with pytest.raises(
        SecurityDisabledError, match=r"No Authorizer: set authorizer\.class\.name on the brokers"
    ):
        asyncio.run(AclRequests(client).describe(wanted, CallDeadline(client)))


def test_a_deletion_returns_what_it_deleted_or_the_first_refusal() -> None:
    gone = DeleteAclsMatchingAcl(0, None, 2, "orders", 3, "User:bob", "*", 3, 3)
    kept = DeleteAclsMatchingAcl(31, None, 2, "orders", 3, "User:bob", "*", 3, 3)
    other = AclBindingFilter("GROUP")
    client = AnsweringClient(
        DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(matching_acls=[gone]),
                DeleteAclsFilterResult(matching_acls=[gone, kept]),
            ]
        )
    )
    answers: Any = asyncio.run(AclRequests(client).delete(filters_of([ALL, other]), CallDeadline(client)))
    assert answers[ALL] == [READ]
    assert isinstance(answers[other], ClusterAuthorizationFailedError)
    assert str(answers[other]).endswith(
        f"{READ}: not deleted: the principal needs the right Alter on cluster"
    )


def test_a_deletion_is_asked_of_another_broker_when_one_cannot_answer_now() -> None:
    client = AnsweringClient(
        NotControllerError(), DeleteAclsResponse(filter_results=[DeleteAclsFilterResult()])
    )
    answers = asyncio.run(AclRequests(client).delete(filters_of([ALL]), CallDeadline(client)))
    assert answers == {ALL: []}
