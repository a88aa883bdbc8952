"""The client of a schema registry: each schema is asked for once, and errors name what was asked for."""

import json
import pickle
import threading

import pytest
from fakes.schema_registry import FakeSchemaRegistry
from waiting import slow_s

from kafka_actors.errors import ConfigError
from kafka_actors.registry import SchemaRegistry
from kafka_actors.schemas import (
    Schema,
    SchemaNotFoundError,
    SchemaRegistryError,
)

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
LATER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": "int", "default": 0}],
}


@pytest.fixture
def fake():
    with FakeSchemaRegistry() as registry:
        yield registry


def test_a_schema_is_found_by_id_and_by_subject_and_version(fake):
    first, second = fake.add("orders-value", ORDER), fake.add("orders-value", LATER)
    registry = SchemaRegistry(fake.url)
    guid = fake.guid(first)
    assert registry.schema_by_id(first) == Schema(first, "AVRO", json.dumps(ORDER), guid=guid)
    assert registry.schema_by_guid(guid) == Schema(-1, "AVRO", json.dumps(ORDER), guid=guid)
    assert str(registry.schema_by_guid(guid)) == f"schema {guid}"
    latest = registry.schema_of("orders-value")
    assert (latest.id, latest.version, str(latest)) == (
        second,
        2,
        f"schema {second} (orders-value version 2)",
    )
    assert registry.schema_of("orders-value", 1).id == first
    assert registry.subjects() == ["orders-value"]
    assert registry.versions("orders-value") == [1, 2]
    assert set(registry.known_schemas("orders-value")) == {first, second, guid, fake.guid(second)}


def test_an_id_is_asked_for_once_however_many_threads_need_it(fake):
    number = fake.add("orders-value", ORDER)
    registry = SchemaRegistry(fake.url)
    fake.faults.append(0.2)  # the first answer is slow
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(registry.schema_by_id(number)), daemon=True)
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(slow_s(30))
    assert len(found) == 8
    assert fake.requests == [f"GET /schemas/ids/{number}"]


def test_a_copy_in_another_process_knows_what_is_known_here(fake):
    number = fake.add("orders-value", ORDER)
    registry = SchemaRegistry(fake.url)
    registry.known_schemas("orders-value")
    asked = len(fake.requests)
    copy = pickle.loads(pickle.dumps(registry))
    assert copy.schema_by_id(number).text == json.dumps(ORDER)
    assert copy.schema_of("orders-value", 1).id == number
    assert copy.schema_by_guid(fake.guid(number)).text == json.dumps(ORDER)
    assert len(fake.requests) == asked


def test_references_come_each_behind_those_that_it_refers_to_itself(fake):
    fake.add("city", {"type": "record", "name": "City", "fields": []})
    fake.add("address", {"type": "string"}, references=[{"name": "City", "subject": "city", "version": 1}])
    refers = [
        {"name": "Address", "subject": "address", "version": 1},
        {"name": "City", "subject": "city", "version": 1},
    ]
    fake.add("person", ORDER, references=refers)
    registry = SchemaRegistry(fake.url)
    assert list(registry.references_of(registry.schema_of("person"))) == ["City", "Address"]


def test_a_reference_to_another_context_is_not_taken_for_the_schema_with_its_id_here(fake):
    number = fake.add(":.shared:city", ORDER)
    registry = SchemaRegistry(fake.url)
    assert registry.schema_of(":.shared:city", 1).id == number
    registry.schema_by_id(number)
    assert fake.requests[-1] == f"GET /schemas/ids/{number}"


def test_references_in_a_circle_are_refused(fake):
    fake.add("a", {"type": "string"}, references=[{"name": "B", "subject": "b", "version": 1}])
    fake.add("b", {"type": "int"}, references=[{"name": "A", "subject": "a", "version": 1}])
    registry = SchemaRegistry(fake.url)
    with pytest.raises(SchemaRegistryError, match="in a circle"):
        registry.references_of(registry.schema_of("a"))


def test_a_registry_that_knows_no_guids_has_none(fake):
    """It answers as to any path that it doesn't know; to other requests that means that the address is none of a registry."""
    registry = SchemaRegistry(fake.url)
    fake.faults.extend([404, 404])
    with pytest.raises(SchemaNotFoundError, match=r"^schema a-guid: http://\S+ doesn't have it$"):
        registry.schema_by_guid("a-guid")
    with pytest.raises(SchemaRegistryError, match="is it the address of a registry's API") as refused:
        registry.schema_by_id(1)
    assert not isinstance(refused.value, SchemaNotFoundError)


def test_an_id_that_is_no_int_of_javas_is_not_asked_for(fake):
    with pytest.raises(
        SchemaNotFoundError, match="schema 4294967295: ids of registries are numbers up to 2147483647"
    ):
        SchemaRegistry(fake.url).schema_by_id(2**32 - 1)
    assert fake.requests == []


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda r: r.schema_by_id(77), r"^schema 77: http://\S+ doesn't have it: Schema 77 not found$"),
        (
            lambda r: r.schema_of("nothing"),
            r"^subject nothing, version latest: .*Subject 'nothing' not found",
        ),
        (
            lambda r: r.schema_of("orders-value", 9),
            r"^subject orders-value, version 9: .*Version 9 not found",
        ),
        (lambda r: r.look_up("orders-value", '"int"'), r"^subject orders-value: .*Schema not found"),
    ],
    ids=["id", "subject", "version", "text"],
)
def test_what_is_not_there_is_named(fake, ask, said):
    fake.add("orders-value", ORDER)
    with pytest.raises(SchemaNotFoundError, match=said):
        ask(SchemaRegistry(fake.url))


def test_a_schema_is_registered_looked_up_and_refused(fake):
    registry = SchemaRegistry(fake.url)
    number = registry.register("orders-value", json.dumps(ORDER))
    assert registry.look_up("orders-value", json.dumps(ORDER)).id == number
    assert registry.compatibility("orders-value", json.dumps(LATER)) == []
    fake.incompatible.add("orders-value")
    assert registry.compatibility("orders-value", json.dumps(LATER)) == [
        "{type: READER_FIELD_MISSING_DEFAULT_VALUE}"
    ]
    with pytest.raises(
        SchemaRegistryError,
        match=r"^subject orders-value: .* refused it: 409: Schema being registered is incompatible",
    ):
        registry.register("orders-value", json.dumps(LATER))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"url": "registry:8081"}, "^url: is 'registry:8081': accepts http"),
        ({"url": "http://u:p4ss@registry"}, "^url: has credentials in it"),
        ({"url": []}, "^url: is a list without an address"),
        ({"url": "http://r", "basic_auth": "user"}, "^basic_auth: has no colon"),
        (
            {"url": "http://r", "basic_auth": "a:b", "bearer_token": "t"},
            "^basic_auth: stands beside another way",
        ),
        ({"url": "http://r", "acks": "all"}, "^acks: is no option of a SchemaRegistry"),
        ({"url": "http://r", "ssl_cafile": "/nowhere"}, "^ssl_cafile: "),
        ({"url": "http://r", "request_timeout_ms": 0}, "^request_timeout_ms: is 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_wrong_arguments_are_refused_before_anything_connects(arguments, said):
    with pytest.raises(ConfigError, match=said) as raised:
        SchemaRegistry(**arguments)
    assert "p4ss" not in str(raised.value)
