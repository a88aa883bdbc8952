"""`FakeKafka` against a real broker: the same random requests to both, and the same answers. `make differential` asks more."""

from __future__ import annotations

import os
from random import Random

import pytest
from fakes.differential import Difference, Pair, Undecided
from fakes.differential_load import Load

from kafka_actors.errors import DecodeError
from kafka_actors.protocol import ApiKey, ApiVersionsRequest, HeartbeatRequest
from kafka_actors.testing import KafkaCluster

pytestmark = pytest.mark.kafka
SEEDS = int(os.environ.get("KAFKA_ACTORS_TEST_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("KAFKA_ACTORS_TEST_FIRST_SEED", "0"))
STEPS = 100


def test_random_requests_have_the_same_answers(kafka_cluster: KafkaCluster, group_id: str) -> None:
    compared = undecided = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        with Pair(kafka_cluster.address(1), Random(seed)) as pair:
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
    kafka_cluster: KafkaCluster,
) -> None:
    with Pair(kafka_cluster.address(1), Random(0)) as pair:
        real = {
            v.api_key: (v.min_version, v.max_version)
            for v in pair.ask_real(ApiVersionsRequest("t", "1"), 3).api_keys
        }
        fake = {
            v.api_key: (v.min_version, v.max_version)
            for v in pair.fake.ask(ApiVersionsRequest("t", "1"), 3).api_keys
        }
    assert {api: real[api] for api in fake} == fake
    assert ApiKey.PRODUCE in fake


def test_a_difference_is_noticed(kafka_cluster: KafkaCluster, group_id: str) -> None:
    """A positive control: a fake that forgets a group answers otherwise."""
    with Pair(kafka_cluster.address(1), Random(0)) as pair:
        load = Load(pair, Random(0), group_id[-8:])
        load.begin()
        load.join()
        pair.fake.cluster.groups.check_coordinator = lambda *_: None  # type: ignore[method-assign]
        pair.fake.cluster.groups._check_group_id = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(Difference, match="error_code"):
            pair.ask(HeartbeatRequest("", 1, "m"), 4, "control")
