"""The APIs of the fake brokers, and their versions in each release of Kafka."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.net.machines.releases import highest_versions
from kafka_actors.protocol import ApiKey, message_class

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
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLUSTER,
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
    return {**ranges, ApiKey.PRODUCE: (0, ranges[ApiKey.PRODUCE][1])}
