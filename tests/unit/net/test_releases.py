"""What each release speaks, and the limit that `api_version` sets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fakes.messages import REQUESTS

from kafka_actors.errors import ConfigError, UnsupportedVersionError
from kafka_actors.net.machines.api_versions import ApiVersionTable, first_version
from kafka_actors.net.machines.releases import NEWEST, OLDEST, highest_versions, lacking, limit_of
from kafka_actors.protocol import (
    ApiKey,
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetDeleteRequest,
)

EVERYTHING = {int(key): (0, 99) for key in REQUESTS}


def ranges_of(release: tuple[int, int]) -> dict[int, tuple[int, int]]:
    return {api: (0, highest) for api, highest in highest_versions(release).items()}


def test_all_requests_that_are_declared_have_a_release_in_which_they_came() -> None:
    assert highest_versions(NEWEST).keys() == {int(key) for key in REQUESTS}


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: ApiKey(key).name)
def test_a_version_that_is_declared_has_a_release_in_which_it_came(key: int) -> None:
    """Else `api_version` would never allow it, and no release be known to have it: add a step to `_RAISED` in releases.py."""
    assert REQUESTS[key].latest <= highest_versions(NEWEST)[int(key)]


def test_a_release_never_speaks_less_than_the_one_before() -> None:
    releases = [(2, minor) for minor in range(1, 9)] + [(3, minor) for minor in range(10)] + [(4, 0), (4, 1)]
    for older, newer in pairwise(releases):
        for api, highest in highest_versions(older).items():
            assert highest_versions(newer)[api] >= highest


@pytest.mark.parametrize("release", [(2, 1), (2, 4), (2, 8), (3, 0), (3, 3), (3, 9), (4, 0), (4, 1), (4, 2)])
def test_a_broker_of_a_release_is_recognised_as_that_release_or_its_nearest_elder(
    release: tuple[int, int],
) -> None:
    found = ApiVersionTable(ranges_of(release)).broker_version()
    assert found <= release
    assert highest_versions(found) == highest_versions(release)
    assert lacking(ranges_of(release), found) == []


def test_what_a_broker_lacks_of_its_release_is_named() -> None:
    ranges = ranges_of((3, 9)) | {int(ApiKey.FETCH): (0, 11)}
    del ranges[ApiKey.HEARTBEAT], ranges[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    assert lacking(ranges, (3, 9)) == ["FETCH 17", "HEARTBEAT 4"]


def test_a_given_version_limits_what_is_used_of_a_newer_broker() -> None:
    table = ApiVersionTable(EVERYTHING, (2, 4))
    picked = [table.pick(request) for request in (FetchRequest, MetadataRequest, JoinGroupRequest)]
    assert picked == [11, 9, 6]
    assert ApiVersionTable(EVERYTHING, (9, 0)).pick(FetchRequest) == FetchRequest.latest
    assert table.broker_version() == (4, 2)  # what the broker is stays what it is


def test_a_given_version_newer_than_the_broker_changes_nothing() -> None:
    table = ApiVersionTable(ranges_of((2, 4)), (3, 9))
    assert table.pick(FetchRequest) == 11


def test_what_the_given_version_lacks_is_refused_by_the_options_name() -> None:
    table = ApiVersionTable(EVERYTHING, (2, 1))
    with pytest.raises(
        UnsupportedVersionError, match=r"api_version=2\.1 allows no OffsetDelete of version 0"
    ):
        table.pick(OffsetDeleteRequest)
    with pytest.raises(UnsupportedVersionError, match=r"api_version=2\.1 allows no Heartbeat of version 3"):
        table.pick(HeartbeatRequest, lowest=3)


def test_the_first_question_is_one_that_the_given_release_understands() -> None:
    assert [first_version(4, limit) for limit in (None, (2, 1), (2, 4), (3, 9))] == [4, 2, 3, 4]


def test_a_limit_has_two_numbers_and_is_not_below_the_oldest_release_spoken_to() -> None:
    assert OLDEST == (2, 1)
    assert limit_of(None) is None
    assert [limit_of(v) for v in ((3,), (2, 8), (3, 9, 1))] == [(3, 0), (2, 8), (3, 9)]
    for old in ((2, 0), (0, 11, 2), (2,), ()):
        with pytest.raises(ConfigError, match=r"api_version: is .*: brokers from 2\.1 on are supported"):
            limit_of(old)
