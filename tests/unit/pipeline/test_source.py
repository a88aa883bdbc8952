"""The source of a pipeline and its connection."""

import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError


def test_a_sink_has_the_sources_cluster_and_security_unless_it_names_another():
    secured = ka.Pipeline.read_kafka(
        "orders",
        bootstrap_servers="b:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="u",
        sasl_plain_password="sesame",
    ).raw()
    secured.write_kafka("scored", sasl_plain_username="other").check()
    secured.write_kafka("scored", bootstrap_servers="elsewhere:9092").check()
    wrong = secured.write_kafka("scored", bootstrap_servers="elsewhere:9092", sasl_plain_username="other")
    with pytest.raises(ConfigError, match=r"^write_kafka\(scored\): sasl_"):
        wrong.check()
    with pytest.raises(ConfigError, match=r"^dead_letters: delivery_timeout_ms"):
        secured.dead_letters("dead", delivery_timeout_ms=5).check()
