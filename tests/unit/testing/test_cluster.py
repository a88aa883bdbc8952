"""What a cluster is asked for, before anything starts."""

import pytest

from kafka_actors.testing import KafkaCluster


def test_a_cluster_has_at_least_one_broker():
    with pytest.raises(ValueError, match="brokers must be at least 1, not 0"):
        KafkaCluster(brokers=0)


def test_racks_are_named_for_all_brokers_or_none():
    with pytest.raises(ValueError, match="one for each of 3 brokers, not 2"):
        KafkaCluster(brokers=3, racks=["a", "b"])
