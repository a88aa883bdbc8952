"""Errors of requests to a registry that can't be made; nothing is sent."""

import pickle
import socket

import pyarrow as pa
import pytest

from kafka_actors.registry import SchemaRegistry
from kafka_actors.schemas import AvroDecoder, SchemaRegistryError
from kafka_actors.schemas.framing import frame


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        ({"basic_auth": "key:${env:NO_SUCH_SECRET}"}, r"basic_auth: refers to \$\{env:NO_SUCH_SECRET\}"),
        ({"bearer_token": "${file:/nowhere}"}, r"bearer_token: refers to \$\{file:/nowhere\}"),
    ],
    ids=["basic", "bearer"],
)
def test_values_are_not_at_fault_where_this_process_lacks_the_credentials(credentials, said):
    decoder = AvroDecoder('"long"', registry=SchemaRegistry("http://127.0.0.1:1", **credentials))
    values = pa.array([frame(7) + b"\2"], pa.binary())
    for copy in (decoder, pickle.loads(pickle.dumps(decoder))):
        with pytest.raises(
            SchemaRegistryError, match=f"^schema 7: http://127.0.0.1:1 can't be asked: {said}"
        ):
            copy.decode(values)


def test_a_timeout_that_no_socket_can_have_is_as_long_as_it_can(monkeypatch):
    found = []

    def connect(connection):
        with socket.socket() as made:
            made.settimeout(connection.timeout)
            found.append(made.gettimeout())
        raise ValueError("no need to connect")

    monkeypatch.setattr("http.client.HTTPConnection.connect", connect)
    with pytest.raises(SchemaRegistryError):
        SchemaRegistry("http://127.0.0.1:1", request_timeout_ms=2**63).schema_by_id(7)
    assert found == [(2**31 - 1) / 1000], "milliseconds that poll(2) takes"


@pytest.mark.parametrize(
    "credentials",
    [
        {"bearer_token": "s3cret\n"},
        {"headers": {"x-api-key": "s3cret\n"}},
        {"headers": {"x-api-key": "s3cret€"}},
    ],
    ids=["token", "header", "character"],
)
def test_a_secret_that_no_header_can_have_is_not_shown(credentials, monkeypatch):
    monkeypatch.setattr("http.client.HTTPConnection.connect", lambda connection: None)
    with pytest.raises(SchemaRegistryError, match="a token or header has a line's end") as raised:
        SchemaRegistry("http://127.0.0.1:1", **credentials).schema_by_id(7)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__
