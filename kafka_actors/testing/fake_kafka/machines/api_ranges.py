"""The APIs of the fake brokers, and their versions in each release of Kafka.

Theory of operation. A cluster has a release, and clients choose their versions by what ApiVersions tells
them; so a test against "Kafka 2.4" is the same cluster with other ranges. The highest version of each API in
each release is one table for fake and client (`net/machines/releases.py`, which a test compares with real
brokers); an API that is not in it for a release did not exist. The lowest is that of the message's
declaration.

What is announced and what is understood differ in one place, as in Kafka: brokers announce Produce from
version 0 on, though they refuse the old ones, because librdkafka takes the announcement as the sign that it
may compress.

Source: `ApiKeys`, `ApiVersionManager`; KAFKA-18659.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors import errors
from kafka_actors.net.machines.releases import highest_versions
from kafka_actors.protocol import ApiKey, encode, message_class
from kafka_actors.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from .settings import TRANSACTION_VERSION

APIS = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
)
"""All APIs that the fake brokers have, by Kafka's numbers."""


def api_ranges(release: tuple[int, int]) -> dict[int, tuple[int, int]]:
    """Returns API → lowest and highest version that brokers of a release understand.

    The lowest are those of the declarations, which are Kafka 4's: what only older brokers understand is left out.
    """
    highest = highest_versions(release)
    ranges = {}
    for api in APIS:
        cls = message_class(api, "request")
        if api in highest:
            ranges[int(api)] = (cls.min_version, min(highest[api], cls.max_version))
    return ranges


def announced(ranges: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Returns what ApiVersions tells of these: brokers say that they understand Produce 0, else librdkafka compresses nothing (KAFKA-18659)."""
    return {api: (0, high) if api == ApiKey.PRODUCE else (low, high) for api, (low, high) in ranges.items()}


def versions_response(
    ranges: Mapping[int, tuple[int, int]], release: tuple[int, int], level: int
) -> ApiVersionsResponse:
    """Tells a broker's versions, and the level of `transaction.version` that the cluster has finalised (KIP-584)."""
    known = release >= (4, 0)
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, low, high) for key, (low, high) in sorted(announced(ranges).items())],
        supported_features=[SupportedFeatureKey(TRANSACTION_VERSION, 0, 2)] if known else [],
        finalized_features_epoch=0 if known else -1,
        finalized_features=[FinalizedFeatureKey(TRANSACTION_VERSION, level, level)] if level else [],
    )


def unsupported_version(correlation_id: int, low: int, high: int) -> bytes:
    """The answer to an unknown version of ApiVersions: in version 0, from Kafka 2.4 on with the range of ApiVersions itself (KIP-511)."""
    named = [ApiVersion(int(ApiKey.API_VERSIONS), low, high)] if high >= 3 else []
    body = encode(ApiVersionsResponse(error_code=errors.UnsupportedVersionError.code, api_keys=named), 0)
    return (4 + len(body)).to_bytes(4) + correlation_id.to_bytes(4, signed=True) + body


class VersionsOfBrokers:
    """The versions of all APIs that each broker of a cluster speaks: at first those of the release."""

    def __init__(self, release: tuple[int, int]) -> None:
        self._common = api_ranges(release)
        self._own: dict[int, dict[int, tuple[int, int]]] = {}

    def of(self, node_id: int) -> Mapping[int, tuple[int, int]]:
        """Returns API → lowest and highest version of this broker."""
        return self._own.get(node_id, self._common)

    def set(self, api: ApiKey, versions: tuple[int, int] | None, node_id: int | None) -> None:
        """Sets the versions of an API that one broker speaks, or all do (None); `versions` None: it does not have it."""
        chosen = [self._common, *self._own.values()]
        if node_id is not None:
            chosen = [self._own.setdefault(node_id, dict(self._common))]
        for ranges in chosen:
            if versions is None:
                ranges.pop(int(api), None)
            else:
                ranges[int(api)] = versions
