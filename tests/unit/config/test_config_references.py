"""`${env:…}` and `${file:…}` in a client's options: what they stand for is looked up where the client is made."""

import pickle

import pytest

import kafka_actors as ka
from kafka_actors.config import (
    ClientConfig,
    JobConfig,
    ProducerConfig,
    build,
    looked_up,
    producer_over,
    resolved,
)
from kafka_actors.errors import ConfigError
from kafka_actors.net import KafkaClient

REFERRING = {
    "bootstrap_servers": "${env:KA_SERVERS}",
    "client_id": "of-${env:KA_USER}",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "ssl_cafile": "${env:KA_CA}",
    "sasl_plain_username": "${env:KA_USER}",
    "sasl_plain_password": "${env:KA_PASSWORD}",
}


@pytest.fixture
def environment(monkeypatch, tmp_path):
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("KA_SERVERS", "a:1,b")
    monkeypatch.setenv("KA_USER", "ann")
    monkeypatch.setenv("KA_PASSWORD", "hush-hush")
    monkeypatch.setenv("KA_CA", str(tmp_path / "ca.pem"))


def test_a_config_is_made_where_there_is_no_such_variable_and_travels_with_the_reference(monkeypatch):
    for name in ("KA_SERVERS", "KA_USER", "KA_PASSWORD", "KA_CA"):
        monkeypatch.delenv(name, raising=False)
    config = build(JobConfig, REFERRING, group_id="g")
    assert b"${env:KA_PASSWORD}" in pickle.dumps(config)
    with pytest.raises(ConfigError, match=r"refers to \$\{env:KA_.*\}: there is no such variable here"):
        resolved(config)


def test_it_is_looked_up_in_the_process_that_connects(environment):
    config = build(JobConfig, REFERRING, group_id="g")
    assert b"hush-hush" not in pickle.dumps(config)
    found = resolved(config)
    assert isinstance(found, JobConfig)
    assert found.bootstrap_servers == ["a:1", "b:9092"]
    assert found.client_id == "of-ann"
    assert found.group_id == "g"
    login = looked_up(found)
    assert login.sasl_plain_username == "ann"
    assert login.sasl_plain_password is not None
    assert login.sasl_plain_password.reveal() == "hush-hush"
    assert "hush" not in repr(login)
    over = producer_over({"bootstrap_servers": config.bootstrap_servers}, {})
    assert resolved(over).bootstrap_servers == found.bootstrap_servers


def test_what_it_stands_for_is_checked_then(environment, monkeypatch):
    monkeypatch.setenv("KA_CA", "/not/there.pem")
    with pytest.raises(ConfigError, match=r"^ssl_cafile: is '/not/there.pem': there is no such file"):
        resolved(build(ClientConfig, REFERRING))


def admin(**options):
    with ka.Admin(**options) as made:
        return made._admin


CLIENTS = {
    "consumer": lambda **options: ka.Consumer(**options)._session,
    "async consumer": lambda **options: ka.AsyncConsumer(**options)._session,
    "producer": ka.Producer,
    "async producer": ka.AsyncProducer,
    "admin": admin,
    "async admin": ka.AsyncAdmin,
    "client": lambda *, config, **options: KafkaClient(**config, **options),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_of_ones_own_looks_it_up_when_it_is_made(kind, environment, monkeypatch):
    options = {**REFERRING, "security_protocol": "SASL_PLAINTEXT"}
    del options["ssl_cafile"]
    found = CLIENTS[kind](config=options).config
    assert found.bootstrap_servers == ["a:1", "b:9092"]
    assert "hush" not in str(pickle.dumps(found)), "it is looked up at each authentication"
    assert looked_up(found).sasl_plain_password.reveal() == "hush-hush"
    monkeypatch.delenv("KA_PASSWORD")
    with pytest.raises(
        ConfigError, match=r"^sasl_plain_password: refers to \$\{env:KA_PASSWORD\}: there is no"
    ):
        CLIENTS[kind](config=options)


def test_a_config_without_references_is_the_same():
    config = build(ClientConfig, {"bootstrap_servers": "a:1", "client_id": "${not one}"})
    assert resolved(config) is config


def test_a_producers_options_leave_the_connection_where_they_name_other_servers():
    connection = {"bootstrap_servers": ["a:1"], "client_id": "c"}
    over = producer_over(connection, {"acks": "1", "enable_idempotence": False})
    assert (over.bootstrap_servers, over.client_id, over.acks) == (["a:1"], "c", "1")
    other = producer_over(connection, {"bootstrap_servers": ["b:2"]})
    assert other == build(ProducerConfig, {"bootstrap_servers": "b:2"})


def test_transactions_are_for_a_producer_that_its_maker_ends_them_with():
    with pytest.raises(ConfigError, match="transactional_id: is for a Producer of your own"):
        producer_over({"bootstrap_servers": ["a:1"]}, {"transactional_id": "t"})
