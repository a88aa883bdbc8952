"""The highest version of each API in each release of Kafka, as brokers of that release answer ApiVersions.

Theory of operation. A broker tells the versions of its APIs, not its release. The table says which release raised which API to which
version. So it gives the versions of a release (`highest_versions`): the bound that the option `api_version` sets, and what
`check_version(strict=True)` compares a broker with (`lacking`), once `ApiVersionTable.broker_version` has recognised its release.

The steps are written as text, one line for each API, because that is how a person compares them with Kafka's
message definitions: the release, a colon, the version. Between two steps the version of the older one holds.
An API without a step up to a release does not exist in it. APIs that a broker has only where they are turned
on (`_OPTIONAL`) are not missed.

A new release of Kafka adds steps to `_RAISED`. A unit test fails for a declared version that no release has;
tests/integration/test_client_versions.py compares the table with real brokers. A release that raised nothing that is spoken here has
no entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.errors import ConfigError
from kafka_actors.protocol import ApiKey

Release = tuple[int, int]

# By API: each release that raised its highest version, with that version. Kafka 2.1 is the oldest supported release.
_RAISED: Mapping[ApiKey, str] = {
    ApiKey.PRODUCE: "2.1:7 2.4:8 2.8:9 3.7:10 3.8:11 4.0:12 4.1:13",
    ApiKey.FETCH: "2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18",
    ApiKey.LIST_OFFSETS: "2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9 4.0:10 4.2:11",
    ApiKey.METADATA: "2.1:7 2.3:8 2.4:9 2.8:11 3.1:12 4.0:13",
    ApiKey.OFFSET_COMMIT: "2.1:6 2.3:7 2.4:8 3.7:9 4.2:10",
    ApiKey.OFFSET_FETCH: "2.1:5 2.4:6 2.5:7 3.0:8 3.7:9 4.2:10",
    ApiKey.FIND_COORDINATOR: "2.1:2 2.4:3 3.0:4 3.8:5 3.9:6",
    ApiKey.JOIN_GROUP: "2.1:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9",
    ApiKey.HEARTBEAT: "2.1:2 2.3:3 2.4:4",
    ApiKey.LEAVE_GROUP: "2.1:2 2.4:4 3.2:5",
    ApiKey.SYNC_GROUP: "2.1:2 2.3:3 2.4:4 2.5:5",
    ApiKey.DESCRIBE_GROUPS: "2.1:2 2.3:3 2.4:5 4.0:6",
    ApiKey.LIST_GROUPS: "2.1:2 2.4:3 2.6:4 3.8:5",
    ApiKey.SASL_HANDSHAKE: "2.1:1",
    ApiKey.API_VERSIONS: "2.1:2 2.4:3 3.9:4",
    ApiKey.CREATE_TOPICS: "2.1:3 2.4:5 2.7:6 2.8:7",
    ApiKey.DELETE_TOPICS: "2.1:3 2.4:4 2.7:5 2.8:6",
    ApiKey.DELETE_RECORDS: "2.1:1 2.6:2",
    ApiKey.INIT_PRODUCER_ID: "2.1:1 2.4:2 2.5:3 2.7:4 3.8:5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "2.1:2 2.3:3 2.8:4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "2.1:1 2.7:2 2.8:3 3.6:4 3.8:5",
    ApiKey.ADD_OFFSETS_TO_TXN: "2.1:1 2.7:2 2.8:3 3.8:4",
    ApiKey.END_TXN: "2.1:1 2.7:2 2.8:3 3.8:4 4.0:5",
    ApiKey.TXN_OFFSET_COMMIT: "2.1:2 2.5:3 3.8:4 4.0:5",
    ApiKey.DESCRIBE_ACLS: "2.1:1 2.5:2 3.3:3",
    ApiKey.CREATE_ACLS: "2.1:1 2.5:2 3.3:3",
    ApiKey.DELETE_ACLS: "2.1:1 2.5:2 3.3:3",
    ApiKey.DESCRIBE_CONFIGS: "2.1:2 2.6:3 2.8:4",
    ApiKey.SASL_AUTHENTICATE: "2.1:0 2.2:1 2.5:2",
    ApiKey.CREATE_PARTITIONS: "2.1:1 2.5:2 2.7:3",
    ApiKey.DELETE_GROUPS: "2.1:1 2.4:2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3:0 2.4:1",
    ApiKey.OFFSET_DELETE: "2.4:0",
    ApiKey.DESCRIBE_CLUSTER: "2.8:0 3.7:1 4.0:2",
    ApiKey.DESCRIBE_PRODUCERS: "2.8:0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0:0",
    ApiKey.LIST_TRANSACTIONS: "3.0:0 3.8:1 4.1:2",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7:0 4.0:1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8:0 4.0:1",
}

_OPTIONAL = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
"""APIs that a broker of the release has only where they are turned on."""


def _parsed(raised: str) -> list[tuple[Release, int]]:
    """Returns the steps of one API, the oldest first."""
    found = []
    for step in raised.split():
        release, version = step.split(":")
        major, minor = release.split(".")
        found.append(((int(major), int(minor)), int(version)))
    return found


_STEPS = {api: _parsed(raised) for api, raised in _RAISED.items()}

OLDEST = min(release for steps in _STEPS.values() for release, _ in steps)
NEWEST = max(release for steps in _STEPS.values() for release, _ in steps)


def limit_of(api_version: tuple[int, ...] | None) -> Release | None:
    """The release that the option `api_version` names by its first two numbers; None sets no limit.

    Raises `ConfigError` for releases before 2.1.
    """
    if api_version is None:
        return None
    major, minor = (*api_version, 0, 0)[:2]
    if (major, minor) < OLDEST:
        text = ".".join(map(str, api_version))
        raise ConfigError("api_version", f"is {text}: brokers from {OLDEST[0]}.{OLDEST[1]} on are supported")
    return major, minor


def highest_versions(release: Release) -> dict[int, int]:
    """The highest version of each API in a release; APIs that it lacks are absent."""
    found: dict[int, int] = {}
    for api, steps in _STEPS.items():
        reached = [version for since, version in steps if since <= release]
        if reached:
            found[int(api)] = reached[-1]
    return found


def lacking(ranges: Mapping[int, tuple[int, int]], release: Release) -> list[str]:
    """The APIs with the versions that a broker of that release has and this one lacks, such as `FETCH 12`."""
    return [
        f"{ApiKey(api).name} {highest}"
        for api, highest in sorted(highest_versions(release).items())
        if api not in _OPTIONAL and ranges.get(api, (0, -1))[1] < highest
    ]
