"""The schema of a query that goes on: the one that it began with, or a line that says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import AvroDecoder, Schema
from kafka_actors.spark.source.machines.stream_offsets import KeptSchema, StreamOffsets
from kafka_actors.spark.source.query_schema import QuerySchema, ReadBy


def order(*more: dict[str, Any], **others: str) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *more], **others}


X = {"name": "x", "type": "long", "default": 1}
OTHER_X = {"name": "x", "type": "string", "default": ""}


@pytest.fixture
def registry() -> RegistryInMemory:
    made = RegistryInMemory()
    made.add("orders-value", order())
    made.add("orders-value", order(doc="the same columns"))
    made.add("orders-value", order(X))
    made.add("orders-value", order(OTHER_X))
    return made


def query(registry: RegistryInMemory, version: int, pinned: bool = False) -> QuerySchema:
    chosen: Schema = registry.schema_of("orders-value", version)
    decoder = AvroDecoder(chosen.text, registry=registry)
    return QuerySchema(
        decoder,
        registry,
        chosen,
        pinned=pinned,
        option="schema.registry.version",
        pin="schema.registry.version=",
    )


def at(schema: KeptSchema | None) -> StreamOffsets:
    return StreamOffsets({}, schema=schema)


V1, V2, V3 = (KeptSchema(number, "orders-value", number) for number in (1, 2, 3))


def test_a_new_query_has_what_was_chosen(registry: RegistryInMemory) -> None:
    made = query(registry, 2)
    assert made.of(at(None)) == V2
    assert made.read_by(at(None), at(V2)) is None


def test_the_schema_before_is_kept_where_columns_are_the_same(registry: RegistryInMemory) -> None:
    made = query(registry, 2)
    assert made.of(at(V1)) == V1
    assert made.read_by(at(V1), at(V1)) == ReadBy(registry.schema_by_id(1), {})
    assert made.read_by(at(None), at(V1)) == ReadBy(registry.schema_by_id(1), {})  # a first batch, again


@pytest.mark.parametrize(
    ("version", "before", "says"),
    [
        (3, V1, "columns: x is new"),
        (1, V3, "columns: x is gone"),
        (4, V3, "columns: x was int64 not null, is string not null"),
    ],
)
def test_other_columns_are_refused_with_what_keeps_the_schema(
    registry: RegistryInMemory, version: int, before: KeptSchema, says: str
) -> None:
    made = query(registry, version)
    for ask in (lambda: made.of(at(before)), lambda: made.read_by(at(before), at(before))):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert str(caught.value) == (
            f"schema.registry.version: the latest is schema {version} (orders-value version {version}) now, while the "
            f"query has read by schema {before.id} (orders-value version {before.version}) since its first start ({says}): keep it with "
            f"schema.registry.version={before.version}, or go on by the new one with schema.registry.version={version}"
        )


def test_a_schema_that_is_named_takes_the_place_of_any_other(registry: RegistryInMemory) -> None:
    made = query(registry, 3, pinned=True)
    assert made.of(at(V1)) == V3
    assert made.read_by(at(V1), at(V3)) is None


def test_a_schema_that_the_registry_has_no_more_is_named(registry: RegistryInMemory) -> None:
    with pytest.raises(
        ConfigError, match=r"the query has read by schema 99 \(orders-value version 9\) since its first start"
    ):
        query(registry, 1).of(at(KeptSchema(99, "orders-value", 9)))
