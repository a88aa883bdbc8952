"""Versions that both sides speak."""

from __future__ import annotations

import pytest

from kafka_actors.errors import UnrecognizedBrokerVersion, UnsupportedVersionError
from kafka_actors.net.machines.api_versions import ApiVersionTable, retry_version
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsResponse,
    FetchRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from kafka_actors.protocol.messages.api_versions import ApiVersion


def of(*ranges: tuple[int, int, int]) -> ApiVersionTable:
    return ApiVersionTable.of(ApiVersionsResponse(api_keys=[ApiVersion(*r) for r in ranges]))


def test_the_newest_common_version_is_picked() -> None:
    table = of((ApiKey.FETCH, 4, 11), (ApiKey.METADATA, 0, 99))
    assert table.pick(FetchRequest) == 11
    assert table.pick(MetadataRequest) == MetadataRequest.latest
    assert table.pick(FetchRequest, highest=10) == 10


def test_a_version_that_is_not_stable_is_never_picked() -> None:
    assert of((ApiKey.FETCH, 4, 11), (ApiKey.OFFSET_COMMIT, 2, 10)).pick(OffsetCommitRequest) == 9


def test_no_common_version_names_both_ranges() -> None:
    with pytest.raises(UnsupportedVersionError, match="the broker speaks Fetch 4 to 11, 12 to 18 is needed"):
        of((ApiKey.FETCH, 4, 11)).pick(FetchRequest, lowest=12)


def test_a_broker_too_new_for_us_is_refused() -> None:
    table = of((ApiKey.FETCH, 90, 99), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 5))
    with pytest.raises(UnsupportedVersionError):
        table.pick(FetchRequest)


def test_an_api_that_the_broker_lacks_is_named() -> None:
    with pytest.raises(UnsupportedVersionError, match="the broker has no Metadata"):
        of((ApiKey.FETCH, 4, 11)).pick(MetadataRequest)


@pytest.mark.parametrize(
    ("ranges", "version"),
    [
        ([(ApiKey.FETCH, 0, 10), (ApiKey.METADATA, 0, 7)], (2, 1)),
        ([(ApiKey.FETCH, 0, 11), (ApiKey.METADATA, 0, 9)], (2, 4)),
        ([(ApiKey.FETCH, 0, 12), (ApiKey.METADATA, 0, 11)], (2, 8)),
        ([(ApiKey.FETCH, 0, 17), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 0)], (3, 9)),
        ([(ApiKey.FETCH, 4, 17), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1)], (4, 0)),
        ([(ApiKey.FETCH, 4, 18), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1)], (4, 1)),
    ],
)
def test_the_release_of_a_broker(ranges: list[tuple[int, int, int]], version: tuple[int, int]) -> None:
    assert of(*ranges).broker_version() == version


@pytest.mark.parametrize("ranges", [[], [(ApiKey.FETCH, 0, 9), (ApiKey.METADATA, 0, 6)], [(999, 0, 1)]])
def test_what_is_older_than_2_1_is_unrecognized(ranges: list[tuple[int, int, int]]) -> None:
    with pytest.raises(UnrecognizedBrokerVersion, match=r"no Kafka broker of version 2\.1 or newer"):
        of(*ranges)


def test_api_versions_is_tried_again_as_the_broker_says() -> None:
    named = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 3)])
    assert retry_version(named, tried=4) == 3
    assert retry_version(ApiVersionsResponse(error_code=35), tried=4) == 0


def test_a_broker_that_names_the_version_it_refused_is_asked_in_version_0() -> None:
    named = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4)])
    assert retry_version(named, tried=4) == 0


def test_librdkafkas_mock_is_not_believed_and_kafka_is() -> None:
    mock = of(
        (ApiKey.FETCH, 0, 16),
        (ApiKey.METADATA, 0, 13),
        (ApiKey.API_VERSIONS, 0, 2),
        (ApiKey.JOIN_GROUP, 0, 6),
    )
    assert (mock.pick(MetadataRequest), mock.pick(JoinGroupRequest), mock.pick(FetchRequest)) == (8, 5, 11)
    kafka = of((ApiKey.FETCH, 4, 17), (ApiKey.METADATA, 0, 13), (ApiKey.API_VERSIONS, 0, 4))
    assert kafka.pick(MetadataRequest) == 13
    old = of(
        (ApiKey.FETCH, 0, 10), (ApiKey.METADATA, 0, 7), (ApiKey.API_VERSIONS, 0, 2), (ApiKey.JOIN_GROUP, 0, 3)
    )
    assert old.pick(MetadataRequest) == 7
