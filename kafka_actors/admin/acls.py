"""Requests about ACLs: to describe, create and delete them."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.errors import KafkaActorsError
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka_actors.protocol.messages.create_acls import AclCreation
from kafka_actors.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsFilterResult

from .machines.acls import bindings_of_resource, deleted_binding
from .machines.advice import refusal
from .requests import CallDeadline, ask_any, persist, persist_each
from .results import AclBinding, AclBindingFilter

__all__ = ["AclRequests"]


class AclRequests:
    """Requests behind the calls of `AsyncAdmin` about ACLs; the calls there say what each does."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def describe(self, wanted: DeleteAclsFilter, deadline: CallDeadline) -> list[AclBinding]:
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type_filter,
            resource_name_filter=wanted.resource_name_filter,
            pattern_type_filter=wanted.pattern_type_filter,
            principal_filter=wanted.principal_filter,
            host_filter=wanted.host_filter,
            operation=wanted.operation,
            permission_type=wanted.permission_type,
        )

        async def attempt(limit_ms: float) -> list[AclBinding]:
            response = await ask_any(self._client, request, limit_ms)
            error = refusal(response.error_code, response.error_message, request="DescribeAcls")
            if error is not None:
                raise error
            return sorted(acl for resource in response.resources for acl in bindings_of_resource(resource))

        return await persist(self._client, attempt, deadline)

    async def create(
        self, creations: Mapping[AclBinding, AclCreation], deadline: CallDeadline
    ) -> dict[AclBinding, KafkaActorsError | None]:
        async def attempt(
            acls: list[AclBinding], limit_ms: float
        ) -> dict[AclBinding, KafkaActorsError | None]:
            request = CreateAclsRequest([creations[acl] for acl in acls])
            response = await ask_any(self._client, request, limit_ms)
            return {
                acl: refusal(
                    result.error_code, f"{acl}: {result.error_message or 'refused'}", request="CreateAcls"
                )
                for acl, result in zip(acls, response.results, strict=False)
            }

        return await persist_each(self._client, creations, attempt, deadline)

    async def delete(
        self, filters: Mapping[AclBindingFilter, DeleteAclsFilter], deadline: CallDeadline
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaActorsError]:
        async def attempt(
            wanted: list[AclBindingFilter], limit_ms: float
        ) -> dict[AclBindingFilter, list[AclBinding] | KafkaActorsError]:
            request = DeleteAclsRequest([filters[each] for each in wanted])
            response = await ask_any(self._client, request, limit_ms)
            return {
                each: _deleted(result) for each, result in zip(wanted, response.filter_results, strict=False)
            }

        return await persist_each(self._client, filters, attempt, deadline)


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | KafkaActorsError:
    """ACLs that one filter deleted, or the first error: of the filter, or of an ACL that it matches."""
    error: KafkaActorsError | None = refusal(result.error_code, result.error_message, request="DeleteAcls")
    for acl in result.matching_acls:
        said = f"{deleted_binding(acl)}: {acl.error_message or 'not deleted'}"
        error = error or refusal(acl.error_code, said, request="DeleteAcls")
    return error or [deleted_binding(acl) for acl in result.matching_acls]
