"""Conversion of ACLs and their filters into requests, and of brokers' responses into ACLs.

Theory of operation. Everything that is given is checked before anything is sent, so one ACL that can't be is an error of the whole
call, and never leaves half of a list created. What a broker refuses afterwards is the outcome of that ACL alone.

- An ACL to create has one value in each field. The tables in `codes` lack ANY and UNKNOWN, and MATCH is left out for it: brokers
  refuse all three there. A CLUSTER has one name, and brokers refuse any other (`AclApis`).
- A filter may leave fields out: None is ANY for a code, and null for a name, which both take every value. MATCH also finds the
  ACLs of prefixes and of "*" that concern a name (KIP-290).
- The results are dicts, so an ACL that is given twice is sent once. To create one that exists succeeds: a request may be repeated
  when its answer was lost. To delete may be repeated too, but the second answer lacks what the first one deleted.

The fields, their codes and what a filter matches are those of KIP-140; `AclBinding` and `AclBindingFilter` are Java's names.

The operations and principals that make sense for a resource are not checked here: brokers store what they
don't use, and later ones may have more. A principal needs its type, such as "User:", or no authorizer would
ever match it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafka_actors.admin.results import AclBinding, AclBindingFilter
from kafka_actors.errors import UsageError, kind_of
from kafka_actors.protocol.messages.create_acls import AclCreation
from kafka_actors.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl
from kafka_actors.protocol.messages.describe_acls import AclDescription, DescribeAclsResource

from .codes import (
    ANY,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    code_of,
    name_of,
)

__all__ = ["bindings_of_resource", "creations_of", "deleted_binding", "filters_of"]

S = TypeVar("S")
STORED_PATTERNS = {name: code for name, code in PATTERN_TYPES.items() if name != "MATCH"}
CLUSTER_NAME = "kafka-cluster"
"""Name of the one resource of the type CLUSTER."""


def creations_of(acls: Iterable[AclBinding]) -> dict[AclBinding, AclCreation]:
    """Converts ACLs to be created. Raises `TypeError` and `UsageError` for what can't be one."""
    return {acl: _creation(acl) for acl in _each(acls, AclBinding, "acls")}


def _creation(acl: AclBinding) -> AclCreation:
    """Converts one ACL. A principal is a type and a name, as authorizers compare it: "alice" alone would match nobody."""
    if acl.resource_type == "CLUSTER" and acl.resource_name != CLUSTER_NAME:
        raise UsageError(f"resource_name is {acl.resource_name!r}: that of a CLUSTER is {CLUSTER_NAME!r}")
    for argument in ("resource_name", "principal", "host"):
        _filled(getattr(acl, argument), argument)
    if ":" not in acl.principal:
        raise UsageError(f"principal is {acl.principal!r}: give its type and name, such as 'User:alice'")
    return AclCreation(
        resource_type=code_of(RESOURCE_TYPES, acl.resource_type, "resource_type"),
        resource_name=acl.resource_name,
        resource_pattern_type=code_of(STORED_PATTERNS, acl.pattern_type, "pattern_type"),
        principal=acl.principal,
        host=acl.host,
        operation=code_of(OPERATIONS, acl.operation, "operation"),
        permission_type=code_of(PERMISSION_TYPES, acl.permission_type, "permission_type"),
    )


def filters_of(filters: Iterable[AclBindingFilter]) -> dict[AclBindingFilter, DeleteAclsFilter]:
    """Converts filters. Raises `TypeError` and `UsageError` for what can't be one."""
    return {each: _filter(each) for each in _each(filters, AclBindingFilter, "filters")}


def _filter(wanted: AclBindingFilter) -> DeleteAclsFilter:
    """Converts one filter. DescribeAcls has the same fields, so its request is made of this one."""

    def code(codes: Mapping[str, int], argument: str) -> int:
        name = getattr(wanted, argument)
        return ANY if name is None else code_of(codes, name, argument)

    for argument in ("resource_name", "principal", "host"):
        if getattr(wanted, argument) is not None:
            _filled(getattr(wanted, argument), argument)
    return DeleteAclsFilter(
        resource_type_filter=code(RESOURCE_TYPES, "resource_type"),
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=code(PATTERN_TYPES, "pattern_type"),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=code(OPERATIONS, "operation"),
        permission_type=code(PERMISSION_TYPES, "permission_type"),
    )


def bindings_of_resource(resource: DescribeAclsResource) -> list[AclBinding]:
    """ACLs of a resource in a DescribeAcls response."""
    return [_binding(resource, acl) for acl in resource.acls]


def deleted_binding(acl: DeleteAclsMatchingAcl) -> AclBinding:
    """ACL that a DeleteAcls response names as deleted."""
    return _binding(acl, acl)


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    """Makes an ACL of a response. DescribeAcls lists ACLs below their resource, DeleteAcls repeats the resource in each."""
    return AclBinding(
        resource_type=name_of(RESOURCE_TYPES, resource.resource_type),
        resource_name=resource.resource_name,
        principal=acl.principal,
        operation=name_of(OPERATIONS, acl.operation),
        permission_type=name_of(PERMISSION_TYPES, acl.permission_type),
        pattern_type=name_of(PATTERN_TYPES, resource.pattern_type),
        host=acl.host,
    )


def _each(values: Iterable[S], kind: type[S], argument: str) -> list[S]:
    """Checks that all that is given is of this kind; a single one in place of a list gets an error that says so."""
    if isinstance(values, kind):
        raise TypeError(f"{argument} is {kind_of(values)}: give a list of them")
    found = list(values)
    for one in found:
        if not isinstance(one, kind):
            raise TypeError(f"{argument} has {one!r}, {kind_of(one)}: give {kind.__name__}(…)")
    return found


def _filled(value: object, argument: str) -> None:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{argument} is {value!r}, {kind_of(value)}: give a name")
