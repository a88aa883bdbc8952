"""Schemas of a registry as texts, and who counts as a registry."""

import kafka_actors as ka
from kafka_actors.schemas import Schema
from kafka_actors.schemas.registry import Registry


def test_a_schema_says_where_it_is_from():
    assert str(Schema(7, "AVRO", "{}")) == "schema 7"
    assert str(Schema(7, "AVRO", "{}", (), "orders-value", 3)) == "schema 7 (orders-value version 3)"


def test_the_client_is_a_registry_and_an_address_is_none():
    assert isinstance(ka.SchemaRegistry("http://localhost:1"), Registry)
    assert not isinstance("http://localhost:1", Registry)
