"""GSSAPI (Kerberos) against a real broker and a real KDC, in a realm of the test's own."""

import asyncio
import os
import random
import time
from types import SimpleNamespace

import pytest
from fakes.kdc import NAME, Realm, required
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    AuthenticationError,
    ConnectionFailedError,
    SaslAuthenticationFailedError,
    SaslError,
)
from kafka_actors.net import Connection
from kafka_actors.net.machines.sasl import MIN_RENEWAL_S
from kafka_actors.net.security import kerberos
from kafka_actors.protocol import MetadataRequest, SaslAuthenticateResponse, SaslHandshakeResponse
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.cluster import TEST_JVM
from kafka_actors.testing.fake_kafka import AnswerWith

pytestmark = pytest.mark.kafka

RENEW_MS = 1_500
SESSION_S = 600.0
"""Length of a session on the listener KERBEROS: none of them ends in a test."""
LISTENERS = {"KERBEROS": "SASL_PLAINTEXT", "RENEW": "SASL_PLAINTEXT"}


def broker_config(keytab):
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="kafka/localhost@{NAME}";'
    )
    config = {}
    for listener in ("kerberos", "renew"):
        prefix = f"listener.name.{listener}."
        config[prefix + "sasl.enabled.mechanisms"] = "GSSAPI"
        config[prefix + "gssapi.sasl.jaas.config"] = jaas
    config["sasl.kerberos.service.name"] = "kafka"
    config["listener.name.renew.gssapi.connections.max.reauth.ms"] = str(RENEW_MS)
    config["listener.name.kerberos.gssapi.connections.max.reauth.ms"] = str(round(SESSION_S * 1000))
    return config


@pytest.fixture(scope="module")
def realm(tmp_path_factory):
    required()
    with Realm(tmp_path_factory.mktemp("realm")) as made:
        made.add("alice")
        made.add("bob")
        made.add("kafka/localhost")
        made.add("kafka/127.0.0.1")  # known to the KDC, not to the broker
        yield made


@pytest.fixture(scope="module")
def kafka(realm):
    jvm = (*TEST_JVM, f"-Djava.security.krb5.conf={realm.krb5_conf}")
    config = broker_config(realm.keytab("kafka/localhost"))
    with KafkaCluster(listeners=LISTENERS, broker_config=config, jvm_options=jvm) as made:
        yield made


@pytest.fixture
def tickets(realm, monkeypatch, tmp_path):
    """This process in the realm, with an empty cache of tickets of the test's own; returns its path."""
    cache = str(tmp_path / "cache")
    for name, value in realm.environment(cache).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return cache


@pytest.fixture
def alice(realm, tickets):
    """A ticket of alice's, as kinit gets one."""
    realm.login("alice", tickets)


OPTIONS = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_domain_name": "localhost",
    "socket_connection_setup_timeout_ms": round(slow_s(10) * 1000),
}


def options(kafka, listener="KERBEROS", **other):
    return {"bootstrap_servers": kafka.bootstrap(listener), **OPTIONS, **other}


def refused(ask, kafka, kind=SaslError, **other):
    config = build(ClientConfig, options(kafka, **other))
    address = kafka.address(1, "KERBEROS")
    with pytest.raises(kind) as caught:
        ask(*address, config)
    text = str(caught.value)
    assert f"{address[0]}:{address[1]}: " in text
    assert "\n" not in text
    assert caught.value.retriable is (kind is ConnectionFailedError)
    return text


def consume(topic, expected, group_id, **config):
    seen = []
    with ka.Consumer([topic], group_id=group_id, auto_offset_reset="earliest", **config) as consumer:
        end = time.monotonic() + slow_s(60)
        while len(seen) < expected:
            assert time.monotonic() < end
            batch = consumer.poll_batch(timeout_ms=500)
            if batch is not None:
                seen += batch.column("value").to_pylist()
        consumer.commit()
    return sorted(seen)


# ---------------------------------------------------------------- what works


def test_a_consumer_reads_and_commits_with_a_ticket(kafka, alice, produce, group_id):
    topic = kafka.create_topic(f"t-{group_id}", partitions=2)
    values = [b"%03d" % n for n in range(500)]
    produce(topic, values, bootstrap_servers=kafka.bootstrap_servers)
    assert consume(topic, 500, group_id, **options(kafka)) == values
    assert kafka.committed(group_id) == kafka.end_offsets(topic)


def test_a_consumer_needs_no_kinit_where_a_keytab_is_named(
    kafka, realm, tickets, produce, group_id, monkeypatch
):
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.keytab("alice"))
    topic = kafka.create_topic(f"k-{group_id}")
    produce(topic, [b"one"], bootstrap_servers=kafka.bootstrap_servers)
    assert consume(topic, 1, group_id, **options(kafka)) == [b"one"]


def test_the_brokers_name_is_the_services_name_where_none_is_given(kafka, alice, ask):
    _, port = kafka.address(1, "KERBEROS")
    config = build(ClientConfig, options(kafka, sasl_kerberos_domain_name=None))
    assert ask("localhost", port, config) == 1


def test_a_session_is_renewed_under_load(kafka, alice):
    """It is due when the test says so, long before the session's end: a broker that stands still for a moment closes the connection of one that
    is over."""
    config = build(ClientConfig, options(kafka))

    async def run():
        connection = await Connection.open(*kafka.address(1, "KERBEROS"), config)
        requests = connection._requests
        for _ in range(2):
            began = time.monotonic()
            while time.monotonic() < began + MIN_RENEWAL_S:
                await connection.send(MetadataRequest(topics=[]))
            due = time.monotonic()
            requests.renew_at = due
            await asyncio.gather(*(connection.send(MetadataRequest(topics=[])) for _ in range(8)))
            assert due + 0.8 * SESSION_S < requests.renew_at < time.monotonic() + SESSION_S
        connection.close()

    asyncio.run(run())


def test_a_kdc_that_is_away_for_a_moment_is_asked_again(kafka, realm, alice, ask, monkeypatch):
    """It is back before the second time."""
    pauses = []

    def pause(seconds):
        if not pauses:
            realm.start()
        pauses.append(seconds)

    monkeypatch.setattr(kerberos, "time", SimpleNamespace(sleep=pause))
    realm.stop()
    try:
        assert ask(*kafka.address(1, "KERBEROS"), build(ClientConfig, options(kafka))) == 1
    finally:
        if not pauses:
            realm.start()
    assert pauses


# ---------------------------------------------------------------- what can't


def test_no_ticket(kafka, tickets, ask):
    text = refused(ask, kafka)
    assert "GSSAPI: kafka@localhost: No Kerberos credentials available" in text
    assert text.endswith("run kinit, or name a keytab in KRB5_CLIENT_KTNAME")


def test_a_ticket_that_has_expired(kafka, realm, tickets, ask):
    realm.login("alice", tickets, seconds=1)
    time.sleep(2)
    text = refused(ask, kafka)
    assert text.endswith("kafka@localhost: Ticket expired: run kinit, or name a keytab in KRB5_CLIENT_KTNAME")


def test_a_service_that_the_kdc_does_not_know(kafka, alice, ask):
    text = refused(ask, kafka, sasl_kerberos_service_name="kafak")
    assert f"Server kafak/localhost@{NAME} not found in Kerberos database: sasl_kerberos_service_name" in text


def test_a_service_that_the_broker_is_not(kafka, alice, ask):
    refused(ask, kafka, SaslAuthenticationFailedError, sasl_kerberos_domain_name="127.0.0.1")


def test_a_keytab_whose_key_was_changed(kafka, realm, tickets, ask, monkeypatch):
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", realm.keytab("bob"))
    realm.new_key("bob")
    assert "the keytab has another key than the KDC" in refused(ask, kafka)


TOKENS = [b"", b"\0", b"\x60\x81", bytes(200), *(random.Random(n).randbytes(4**n) for n in range(1, 6))]


@pytest.mark.parametrize("token", TOKENS, ids=len)
def test_tokens_that_no_kdc_made_are_refused(alice, ask, fake_kafka, token):
    """The broker answers each step of SASL with the same one."""
    mechanisms, step = (
        SaslHandshakeResponse(mechanisms=["GSSAPI"]),
        SaslAuthenticateResponse(auth_bytes=token),
    )
    fake_kafka.on("SaslHandshake", AnswerWith(lambda _: mechanisms), times=None)
    fake_kafka.on("SaslAuthenticate", AnswerWith(lambda _: step), times=None)
    host, _, port = fake_kafka.bootstrap_servers.partition(":")
    with pytest.raises(SaslError, match=rf"127\.0\.0\.1:{port}: GSSAPI: kafka@localhost: .+"):
        ask(host, int(port), build(ClientConfig, OPTIONS))


def test_no_kdc(kafka, realm, alice, ask):
    realm.stop()
    try:
        said = refused(ask, kafka, kind=ConnectionFailedError)  # as a broker that can't be reached
        assert f"Cannot contact any KDC for realm '{NAME}'" in said
    finally:
        realm.start()


def test_a_consumer_without_a_ticket_fails_at_once(kafka, tickets, group_id):
    with (
        pytest.raises(SaslError, match="No Kerberos credentials available"),
        ka.Consumer(["t"], group_id=group_id, **options(kafka)) as consumer,
    ):
        consumer.poll_batch(timeout_ms=60_000)


def test_a_consumer_whose_ticket_ends_meanwhile_ends_with_that(kafka, realm, alice, tickets, group_id):
    topic = kafka.create_topic(f"e-{group_id}")
    with ka.Consumer([topic], group_id=group_id, **options(kafka, "RENEW")) as consumer:
        while not consumer.assignment():
            consumer.poll_batch(timeout_ms=1_000)
        # The one that it has connected with gives way to one that ends soon.
        realm.login("alice", f"{tickets}-short", seconds=2)
        os.replace(f"{tickets}-short", tickets)
        with pytest.raises(AuthenticationError, match="Ticket expired"):
            poll_for(consumer, slow_s(10))


def poll_for(consumer, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        consumer.poll_batch(timeout_ms=200)
