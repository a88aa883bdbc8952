"""Errors of values and registries: what travels with them, and which may pass."""

import pickle

import pytest

import kafka_actors as ka
from kafka_actors.schemas import errors


@pytest.mark.parametrize("name", errors.__all__)
def test_each_is_of_the_librarys_tree_and_survives_a_pickle(name):
    kind = getattr(errors, name)
    made = kind(3, "why") if name in ("DeserializationError", "SerializationError") else kind("why")
    assert isinstance(made, ka.KafkaActorsError)
    assert str(pickle.loads(pickle.dumps(made))) == str(made)
    assert getattr(ka.schemas, name) is kind


def test_only_a_registry_that_is_away_may_be_asked_again():
    assert [name for name in errors.__all__ if getattr(errors, name).retriable] == [
        "SchemaRegistryUnavailableError"
    ]
