"""Requests to a schema registry: other addresses, repeats, credentials, and what is said where they fail."""

import pickle

import pytest
from fakes.schema_registry import FakeSchemaRegistry
from waiting import at_pace_s, within

from kafka_actors.registry import SchemaRegistry
from kafka_actors.schemas import SchemaRegistryError, SchemaRegistryUnavailableError

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def fake():
    with FakeSchemaRegistry() as registry:
        yield registry


def test_another_address_answers_and_a_passing_error_is_tried_again(fake):
    fake.add("orders-value", ORDER)
    fake.faults.extend([500, "cut"])
    registry = SchemaRegistry(f"http://127.0.0.1:1, {fake.url}")
    assert registry.schema_of("orders-value").version == 1
    assert len(fake.requests) == 3


def test_where_nobody_answers_the_error_names_the_address_and_may_pass():
    with pytest.raises(
        SchemaRegistryUnavailableError, match=r"^schema 1: no answer of the registry: http://127.0.0.1:1: "
    ) as raised:
        SchemaRegistry("http://127.0.0.1:1").schema_by_id(1)
    assert raised.value.retriable


def test_an_answer_that_is_cut_is_asked_for_again(fake):
    fake.add("orders-value", ORDER)
    fake.faults.extend([(200, 5, 0.0), (404, 5, 0.0)])
    assert SchemaRegistry(fake.url).schema_of("orders-value").version == 1
    assert len(fake.requests) == 3


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(fake, status):
    fake.add("orders-value", ORDER)
    limit_s = at_pace_s(1)
    fake.faults.append((status, 100, limit_s / 6))
    registry = SchemaRegistry(fake.url, request_timeout_ms=limit_s * 1000)
    with within(8):  # the whole answer takes 16 times the limit
        assert registry.schema_of("orders-value").version == 1


def test_credentials_are_looked_up_where_they_are_used_and_shown_nowhere(fake, monkeypatch):
    fake.user = "key:s3cret"
    fake.add("orders-value", ORDER)
    monkeypatch.setenv("SR_SECRET", "s3cret")
    registry = SchemaRegistry(fake.url, basic_auth="key:${env:SR_SECRET}")
    assert b"s3cret" not in pickle.dumps(registry)
    assert registry.schema_of("orders-value").version == 1
    wrong = SchemaRegistry(fake.url, basic_auth="key:wr0ng")
    with pytest.raises(SchemaRegistryError, match=r"refused user key \(401: Unauthorized\)") as raised:
        wrong.schema_of("orders-value")
    for text in (repr(wrong), str(raised.value), repr(vars(wrong))):
        assert "wr0ng" not in text


def test_a_token_is_sent(fake):
    fake.token = "t0ken"
    fake.add("orders-value", ORDER)
    assert SchemaRegistry(fake.url, bearer_token="t0ken").schema_of("orders-value").version == 1
    with pytest.raises(SchemaRegistryError, match="refused nobody: no credentials were given"):
        SchemaRegistry(fake.url).schema_of("orders-value")


def test_a_redirect_is_not_followed_with_the_credentials(fake):
    fake.faults.append(302)
    with pytest.raises(
        SchemaRegistryError, match=r"redirects to http://127.0.0.1:1/elsewhere: give that address"
    ):
        SchemaRegistry(fake.url, basic_auth="a:b").subjects()
