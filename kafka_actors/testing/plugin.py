"""pytest fixtures with Kafka clusters, for the tests of this library and of its users. Installed with the `testing` extra.

Real clusters are started at their first use and shared by the session. If Java or Maven is missing, tests that need one
are skipped, or fail if `CI` is set in the environment.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # imported late: every pytest run with the package installed loads the plugin
    from . import FakeKafka, KafkaCluster
    from .produce import Produce


def started(brokers: int = 1, **more: Any) -> Iterator[KafkaCluster]:
    """Yields a real cluster, as the body of a fixture; arguments as for `KafkaCluster`. If Kafka can't run, the test is skipped,
    or fails if `CI` is set."""
    from . import KafkaCluster, KafkaUnavailable

    try:
        cluster = KafkaCluster(brokers=brokers, **more).start()
    except KafkaUnavailable as error:
        reason = str(error)
    else:
        with cluster:
            yield cluster
        return
    if os.environ.get("CI"):
        pytest.fail(f"real Kafka can't be skipped while CI is set: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """One real broker, shared by the session. Tests must not kill it; `kafka_cluster_3` is for that."""
    yield from started()


@pytest.fixture(scope="session")
def _three_brokers() -> Iterator[KafkaCluster]:
    yield from started(3)


@pytest.fixture
def kafka_cluster_3(_three_brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three real brokers and a controller, shared by the session. Brokers that a test killed or paused run again after it."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Creates a topic with a unique name on `kafka_cluster`: `kafka_topic(partitions=4, config={…}) -> name`.

    Takes the arguments of `KafkaCluster.create_topic` except the name; `cluster=` for another cluster, or a `FakeKafka`; and `prefix=` for
    the start of the name (by default the test's name).
    """

    def make(
        partitions: int = 1, *, cluster: KafkaCluster | FakeKafka | None = None, prefix: str = "", **more: Any
    ) -> str:
        chosen = cluster if cluster is not None else request.getfixturevalue("kafka_cluster")
        name = _unique(prefix or request.node.name)
        made: str = chosen.create_topic(name, partitions, **more)
        return made

    return make


@pytest.fixture
def group_id(request: pytest.FixtureRequest) -> str:
    """A group id that no other test uses."""
    return _unique(request.node.name)


@pytest.fixture
def produce(request: pytest.FixtureRequest) -> Produce:
    """Produces records in bulk with confluent-kafka, by default to `kafka_cluster`; see `kafka_actors.testing.produce`."""
    from .produce import Produce

    return Produce(lambda: request.getfixturevalue("kafka_cluster").bootstrap_servers)


@pytest.fixture
def fake_kafka() -> Iterator[FakeKafka]:
    """A `FakeKafka` with one broker, a new one for each test. `add_broker` brings more."""
    from . import FakeKafka

    with FakeKafka() as kafka:
        yield kafka


@pytest.fixture
def mock_cluster() -> Iterator[FakeKafka]:
    """Alias: a `FakeKafka` with three brokers, a new one for each test. Write `fake_kafka` in new tests."""
    from . import FakeKafka

    with FakeKafka(brokers=3) as kafka:
        yield kafka


def _unique(text: str) -> str:
    """Returns a legal and unique name of a topic or group that starts with `text`."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', text)[:60].strip('-')}-{uuid.uuid4().hex[:8]}"
