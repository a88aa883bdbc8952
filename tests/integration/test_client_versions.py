"""Brokers of several releases: what they are taken for, and that a client may be held to an older one's versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.loop import in_loop
from fakes.messages import REQUESTS

from kafka_actors.net import KafkaClient
from kafka_actors.net.machines.releases import highest_versions
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.plugin import started

pytestmark = pytest.mark.kafka

# What has no API of its own among those that we speak is taken for the release before.
TAKEN_FOR = {"3.3.2": (3, 3), "3.9.2": (3, 9), "4.1.1": (4, 1), "4.4.0": (4, 2)}


@pytest.fixture(scope="module", params=TAKEN_FOR)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    yield from started(version=request.param)


@in_loop
async def test_a_release_is_recognised_and_speaks_what_our_table_says(kafka: KafkaCluster) -> None:
    async with KafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        release = await client.check_version(strict=True)
        assert release == TAKEN_FOR[kafka.version]
        spoken = client.get_api_versions()
    assert spoken is not None
    for api, highest in highest_versions(release).items():
        # Newer releases than the table knows may speak more; two APIs are there only where they are turned on.
        if api in spoken and kafka.version != "4.4.0":
            assert spoken[api][1] == highest, REQUESTS[api].__name__


@in_loop
async def test_every_release_takes_the_versions_of_2_4(kafka: KafkaCluster) -> None:
    async with KafkaClient(bootstrap_servers=kafka.bootstrap_servers, api_version=(2, 4)) as client:
        await client.set_topics(None)
        assert set(client.snapshot.brokers) == {1}
