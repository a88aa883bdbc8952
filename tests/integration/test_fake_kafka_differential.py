"""`FakeKafka` against a real broker: the same random requests to both, and the same answers. `make differential` asks more, or another
release of Kafka."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from random import Random

import pytest
from fakes.differential import Difference, Pair, Undecided
from fakes.differential_load import Load
from waiting import slow_s

from kafka_actors.errors import DecodeError
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsRequest,
    CreateTopicsRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
)
from kafka_actors.protocol.messages.create_topics import CreatableTopic
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.testing import DEFAULT_VERSION, Distribution, KafkaCluster
from kafka_actors.testing.fake_kafka.machines.group_offsets import MOST_BATCH_BYTES, batch_bytes
from kafka_actors.testing.plugin import started

VERSION = os.environ.get("KAFKA_ACTORS_TEST_KAFKA", DEFAULT_VERSION)
USUAL_SEEDS = 40
SEEDS = int(os.environ.get("KAFKA_ACTORS_TEST_SEEDS", USUAL_SEEDS))
FIRST_SEED = int(os.environ.get("KAFKA_ACTORS_TEST_FIRST_SEED", "0"))
STEPS = 100
LEVEL = os.environ.get("KAFKA_ACTORS_TEST_TRANSACTION_VERSION")
"""Level of `transaction.version` that the cluster has in place of its release's, as one that was upgraded."""

# More than usual are no part of a run that has a budget of time.
pytestmark = [pytest.mark.kafka, *([pytest.mark.slow] if SEEDS > USUAL_SEEDS else [])]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One real broker of the wanted release: the session's, where it is that."""
    if VERSION == DEFAULT_VERSION and LEVEL is None:
        yield request.getfixturevalue("kafka_cluster")
    elif LEVEL is None:
        yield from started(version=VERSION)
    else:
        for cluster in started(version=VERSION):
            finalize(cluster, LEVEL)
            yield cluster


def finalize(cluster: KafkaCluster, level: str) -> None:
    """Lowers the cluster's level of `transaction.version`."""
    command = Distribution.get(VERSION).command(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-server", cluster.bootstrap_servers),
        *("downgrade", "--feature", f"transaction.version={level}"),
    )
    subprocess.run(command, check=True, timeout=slow_s(60))


def paired(broker: KafkaCluster, seed: int) -> Pair:
    level = None if LEVEL is None else int(LEVEL)
    return Pair(broker.address(1), Random(seed), broker.version, level)


def test_random_requests_have_the_same_answers(broker: KafkaCluster, group_id: str) -> None:
    compared = undecided = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        with paired(broker, seed) as pair:
            load = Load(pair, Random(seed), f"{group_id[-8:]}-{seed}")
            try:
                load.begin()
                load.run(STEPS)
                load.end()
            except Undecided:
                undecided += 1
            except (Difference, DecodeError) as error:
                error.add_note(f"seed {seed}")
                raise
            compared += pair.compared
    assert compared > SEEDS * STEPS / 2
    assert undecided <= SEEDS / 3


def test_a_broker_has_the_versions_that_the_fake_announces_for_its_release(
    broker: KafkaCluster,
) -> None:
    with paired(broker, 0) as pair:
        told = [
            pair.ask_real(ApiVersionsRequest("t", "1"), 3),
            pair.fake.ask(ApiVersionsRequest("t", "1"), 3),
        ]
        real, fake = ({v.api_key: (v.min_version, v.max_version) for v in t.api_keys} for t in told)
        levels = [
            {f.name: f.max_version_level for f in t.finalized_features}.get("transaction.version", 0)
            for t in told
        ]
    assert levels[0] == levels[1]
    if pair.release < (4, 0):  # which removed the oldest versions: the fake has none of these
        assert {api: max(low, fake[api][0]) for api, (low, _) in real.items() if api in fake} == {
            api: low for api, (low, _) in fake.items()
        }
        real = {api: (fake[api][0], high) for api, (_, high) in real.items() if api in fake}
    assert {api: real[api] for api in fake} == fake
    assert ApiKey.PRODUCE in fake


def test_the_largest_commit_is_the_same(broker: KafkaCluster, group_id: str) -> None:
    """A coordinator writes a commit as one batch."""
    with paired(broker, 0) as pair:
        pair.ask(CreateTopicsRequest([CreatableTopic(group_id, 85, 1)], timeout_ms=30_000), 7, "admin")
        pair.until_topic_agrees(group_id)
        pair.until_ready(group_id)

        def codes(more: int) -> set[int]:
            """Commits what is `more` bytes larger than the largest one; returns the error codes of its partitions."""
            texts = [(group_id, "\u3042" * 4_096)] * 84
            whole = batch_bytes(group_id, [*texts, (group_id, "m" * 4_096)], pair.release, topic_ids=False)
            left = MOST_BATCH_BYTES + more - whole + 4_096
            texts.append((group_id, "\u3042" * (left // 3) + "m" * (left % 3)))
            assert batch_bytes(group_id, texts, pair.release, topic_ids=False) == MOST_BATCH_BYTES + more
            parts = [OffsetCommitRequestPartition(n, 5, 0, text) for n, (_, text) in enumerate(texts)]
            request = OffsetCommitRequest(
                group_id, topics=[OffsetCommitRequestTopic(group_id, partitions=parts)]
            )
            answer = pair.ask(request, 9, "commits")
            return {p.error_code for t in answer.topics for p in t.partitions}

        refused = 28 if pair.release < (4, 0) else -1
        assert [codes(0), codes(1)] == [{0}, {refused}]


def test_a_difference_is_noticed(broker: KafkaCluster, group_id: str) -> None:
    """A positive control: a fake that forgets a group answers otherwise."""
    with paired(broker, 0) as pair:
        load = Load(pair, Random(0), group_id[-8:])
        load.begin()
        load.join()
        pair.fake.cluster.groups.check_coordinator = lambda *_: None  # type: ignore[method-assign]
        pair.fake.cluster.groups._check_group_id = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(Difference, match="error_code"):
            pair.ask(HeartbeatRequest("", 1, "m"), 4, "control")
