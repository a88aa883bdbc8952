"""The way to a schema registry: TLS with a CA of one's own and a client's certificate, OAuth's client credentials, a proxy; and one clear line
for what is wrong with each. No secret is in any of them."""

import json
import ssl

import pytest
from fakes.schema_registry import FakeSchemaRegistry
from fakes.secure import KEY_PASSWORD, make_files
from fakes.token_endpoint import TokenEndpoint

from kafka_actors.registry import SchemaRegistry
from kafka_actors.schemas import SchemaRegistryError, SchemaRegistryUnavailableError

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def served(files):
    """Makes a registry over TLS, with a subject. `mutual`: it asks for clients' certificates."""
    made = []

    def serve(*, mutual=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.server)
        if mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(files.ca)
        made.append(FakeSchemaRegistry(tls=context).__enter__())
        made[-1].add("orders-value", ORDER)
        return made[-1]

    yield serve
    for registry in made:
        registry.__exit__()


def test_a_registry_with_a_ca_of_ones_own(served, files):
    registry = served()
    assert registry.url.startswith("https://")
    assert SchemaRegistry(registry.url, ssl_cafile=files.ca).schema_of("orders-value").version == 1
    for wrong in (SchemaRegistry(registry.url), SchemaRegistry(registry.url, ssl_cafile=files.other_ca)):
        with pytest.raises(
            SchemaRegistryError,
            match=rf"^subject orders-value, version latest: {registry.url}: its certificate isn't trusted: .*: give its CA as ssl_cafile$",
        ):
            wrong.schema_of("orders-value")
    assert registry.requests == ["GET /subjects/orders-value/versions/latest"], (
        "nothing was sent to one that isn't trusted"
    )


def test_a_registry_that_asks_for_a_clients_certificate(served, files):
    registry = served(mutual=True)
    own = {"ssl_certfile": files.certificate, "ssl_keyfile": files.key, "ssl_password": KEY_PASSWORD}
    assert SchemaRegistry(registry.url, ssl_cafile=files.ca, **own).schema_of("orders-value").version == 1
    with pytest.raises(SchemaRegistryUnavailableError, match=registry.url) as without:
        SchemaRegistry(registry.url, ssl_cafile=files.ca).schema_of("orders-value")
    assert "\n" not in str(without.value)
    assert KEY_PASSWORD not in repr(SchemaRegistry(registry.url, ssl_cafile=files.ca, **own))


@pytest.fixture
def endpoint(tmp_path):
    with TokenEndpoint(tmp_path) as made:
        yield made


def by_oauth(url, endpoint, client):
    return SchemaRegistry(
        url,
        ssl_cafile=endpoint.ca,
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_client_credentials_client_id=client,
        sasl_oauthbearer_client_credentials_client_secret="s3cret",
    )


def test_a_token_is_fetched_for_the_registry_and_used_again(endpoint):
    with FakeSchemaRegistry(token="tok") as registry:
        registry.add("orders-value", ORDER)
        client = by_oauth(registry.url, endpoint, "reader")
        assert client.schema_of("orders-value").version == 1
        assert client.subjects() == ["orders-value"]
    assert len(endpoint.asked) == 1


def test_an_endpoint_that_refuses_and_a_registry_that_refuses_are_told_apart(endpoint):
    with FakeSchemaRegistry(token="another") as registry:
        with pytest.raises(
            SchemaRegistryError, match=r"refused client stranger \(401: Unauthorized\)"
        ) as refused:
            by_oauth(registry.url, endpoint, "stranger").subjects()
        assert "tok" not in str(refused.value).replace("token", "")
        endpoint.answers = [(401, {}, json.dumps({"error": "invalid_client"}))]
        with pytest.raises(
            SchemaRegistryError,
            match=r"no token for the registry: .*answered 401: invalid_client \(client id unknown\)",
        ) as unknown:
            by_oauth(registry.url, endpoint, "unknown").subjects()
    assert "s3cret" not in f"{refused.value} {unknown.value}"
    assert len(registry.requests) == 1


def test_requests_go_through_a_proxy_to_a_registry_that_only_it_can_reach():
    with FakeSchemaRegistry() as proxy:
        proxy.add("orders-value", ORDER)
        registry = SchemaRegistry("http://registry.invalid:8081", proxy=proxy.url)
        assert registry.schema_of("orders-value").version == 1
        assert proxy.headers[0]["Host"] == "registry.invalid:8081"


def test_a_proxy_that_is_away_is_named_without_its_password():
    registry = SchemaRegistry("http://registry.invalid:8081", proxy="http://ann:s3cret@127.0.0.1:1")
    with pytest.raises(
        SchemaRegistryUnavailableError,
        match=r"http://registry.invalid:8081 by the proxy 127.0.0.1:1: .*refused",
    ) as away:
        registry.subjects()
    assert "s3cret" not in str(away.value)
