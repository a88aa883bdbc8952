"""Which versions the fake brokers have in each release."""

from __future__ import annotations

from random import Random

import pytest
from fakes.fake_wire import Wire

from kafka_actors.protocol import ApiKey, ApiVersionsRequest, message_class
from kafka_actors.testing.fake_kafka.machines.api_ranges import APIS, api_ranges
from kafka_actors.testing.fake_kafka.machines.fake_cluster import FakeCluster


@pytest.mark.parametrize("release", [(2, 1), (2, 8), (3, 9), (4, 1), (4, 4)])
def test_a_release_has_no_version_that_is_not_declared(release: tuple[int, int]) -> None:
    for api, (low, high) in api_ranges(release).items():
        cls = message_class(api, "request")
        assert cls.min_version <= low <= high <= cls.max_version


def test_older_releases_have_less() -> None:
    assert api_ranges((2, 1))[ApiKey.FETCH] == (4, 10)
    assert api_ranges((2, 8))[ApiKey.FETCH] == (4, 12)
    assert api_ranges((3, 9))[ApiKey.PRODUCE] == (3, 11)
    assert api_ranges((4, 1))[ApiKey.PRODUCE] == (3, 13)
    assert ApiKey.DESCRIBE_CLUSTER not in api_ranges((2, 7))
    assert ApiKey.OFFSET_DELETE not in api_ranges((2, 1))
    assert api_ranges((4, 4))[ApiKey.OFFSET_COMMIT] == (2, 10)


def test_each_api_that_is_announced_has_a_handler() -> None:
    assert set(FakeCluster(Random(1))._handlers) == set(APIS)


def test_produce_0_is_announced_and_not_understood() -> None:
    wire = Wire()
    ranges = {v.api_key: v.min_version for v in wire.ask(ApiVersionsRequest(), 3).api_keys}
    assert ranges[ApiKey.PRODUCE] == 0
    assert api_ranges((4, 1))[ApiKey.PRODUCE][0] == 3
