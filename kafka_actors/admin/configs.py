"""Requests about settings of topics, brokers and other resources: to describe and to alter them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from kafka_actors.errors import KafkaActorsError, KafkaError, UsageError
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka_actors.protocol.messages.describe_configs import DescribeConfigsResource
from kafka_actors.protocol.messages.incremental_alter_configs import AlterConfigsResource
from kafka_actors.protocol.schema import Request, Response

from .machines.advice import refusal
from .machines.configs import broker_of, config_entry
from .requests import CallDeadline, ask_any, ask_node, fresh_snapshot, persist_each
from .results import ConfigEntry, ConfigResource

__all__ = ["ConfigRequests"]

A = TypeVar("A")
R = TypeVar("R", bound=Response)
Settings = dict[str, ConfigEntry]
ByResource = Mapping[ConfigResource, A | KafkaActorsError]


class ConfigRequests:
    """Requests behind the calls of `AsyncAdmin` about settings; the calls there say what each does."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def describe(
        self, codes: Mapping[ConfigResource, int], include_synonyms: bool, deadline: CallDeadline
    ) -> dict[ConfigResource, Settings | KafkaActorsError]:
        """Settings by resource; `codes` are those of the resources' types."""

        async def ask(
            broker: int | None, resources: list[ConfigResource], limit_ms: float
        ) -> ByResource[Settings]:
            requested = [DescribeConfigsResource(codes[each], each.name, None) for each in resources]
            request = DescribeConfigsRequest(requested, include_synonyms=include_synonyms)
            response = await self._send(broker, request, limit_ms)
            found = {(r.resource_type, r.resource_name): r for r in response.results}
            return {
                each: _refused(each, "DescribeConfigs", result.error_code, result.error_message)
                or {config.name: config_entry(config) for config in result.configs}
                for each in resources
                if (result := found.get((codes[each], each.name))) is not None
            }

        return await self._ask_each(codes, ask, deadline)

    async def alter(
        self,
        changes: Mapping[ConfigResource, AlterConfigsResource],
        validate_only: bool,
        deadline: CallDeadline,
    ) -> dict[ConfigResource, KafkaActorsError | None]:
        async def ask(
            broker: int | None, resources: list[ConfigResource], limit_ms: float
        ) -> ByResource[None]:
            request = IncrementalAlterConfigsRequest([changes[each] for each in resources], validate_only)
            response = await self._send(broker, request, limit_ms)
            found = {(r.resource_type, r.resource_name): r for r in response.responses}
            return {
                each: _refused(each, "IncrementalAlterConfigs", result.error_code, result.error_message)
                for each in resources
                if (result := found.get((changes[each].resource_type, each.name))) is not None
            }

        return await self._ask_each(changes, ask, deadline)

    async def _ask_each(
        self,
        resources: Iterable[ConfigResource],
        ask: Callable[[int | None, list[ConfigResource], float], Awaitable[ByResource[A]]],
        deadline: CallDeadline,
    ) -> dict[ConfigResource, A | KafkaActorsError]:
        """Answer or error of each resource, from the broker that knows about it."""

        async def attempt(left: list[ConfigResource], limit_ms: float) -> ByResource[A]:
            by_broker: dict[int | None, list[ConfigResource]] = {}
            for resource in left:
                by_broker.setdefault(broker_of(resource), []).append(resource)
            answers: dict[ConfigResource, A | KafkaActorsError] = {}

            async def one(broker: int | None, its_resources: list[ConfigResource]) -> None:
                try:
                    answers.update(await ask(broker, its_resources, limit_ms))
                except KafkaActorsError as error:
                    answers.update(dict.fromkeys(its_resources, error))

            await asyncio.gather(*(one(*each) for each in by_broker.items()))
            return answers

        return await persist_each(self._client, resources, attempt, deadline)

    async def _send(self, broker: int | None, request: Request[R], limit_ms: float) -> R:
        if broker is None:
            return await ask_any(self._client, request, limit_ms)
        await self._check_broker(broker, limit_ms)
        return await ask_node(self._client, broker, request, limit_ms)

    async def _check_broker(self, broker: int, limit_ms: float) -> None:
        """Raises `UsageError` for a broker that isn't there."""
        if broker in self._client.snapshot.brokers:
            return
        brokers = (await fresh_snapshot(self._client, limit_ms)).brokers
        if broker not in brokers:
            there = ", ".join(map(str, sorted(brokers)))
            raise UsageError(f"the cluster has no broker {broker} now: give the id of one of {there}")


def _refused(resource: ConfigResource, request: str, code: int, message: str | None) -> KafkaError | None:
    if resource.type == "TOPIC":
        return refusal(code, message, request=request, topic=resource.name)
    if resource.type == "GROUP":
        return refusal(code, message, request=request, group=resource.name)
    return refusal(code, f"{resource}: {message or 'refused'}", request=request)
