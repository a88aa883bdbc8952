"""TLS and SASL against a real broker: what works, and sessions that end."""

import asyncio
import json
import ssl
import threading
import time
from pathlib import Path

import pytest
from fakes.asking import Tokens, answer_to, config_for, sasl_options
from fakes.secure import (
    KEY_PASSWORD,
    LASTING_MS,
    ONE_CIPHER,
    PASSWORD,
    RENEW_MS,
    add_scram_user,
    unsecured_token,
)
from fakes.token_endpoint import TokenEndpoint
from pace import this_run
from waiting import until, until_async

from kafka_actors.errors import DisconnectedError, KafkaTimeoutError, NodeNotReadyError, SaslError
from kafka_actors.net import Connection, FetchSocket
from kafka_actors.net.security import tls
from kafka_actors.protocol import ApiKey, MetadataRequest, frame


@pytest.fixture
def kafka(secure):
    return secure[0]


@pytest.fixture
def files(secure):
    return secure[1]


# ---------------------------------------------------------------- what works


def test_tls(kafka, files, ask):
    address, config = config_for(kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca)
    assert ask(*address, config) == 1


def test_tls_with_a_clients_certificate_and_an_encrypted_key(kafka, files, ask):
    address, config = config_for(
        kafka,
        "MTLS",
        security_protocol="SSL",
        ssl_cafile=files.ca,
        ssl_certfile=files.certificate,
        ssl_keyfile=files.key,
        ssl_password=KEY_PASSWORD,
    )
    assert ask(*address, config) == 1


def test_tls_with_a_given_context(kafka, files, ask):
    context = ssl.create_default_context(cafile=files.ca)
    address, config = config_for(kafka, "TLS", security_protocol="SSL", ssl_context=context)
    assert ask(*address, config) == 1


def test_tls_with_ciphers_and_a_list_of_revoked_certificates(kafka, files, ask):
    address, config = config_for(
        kafka,
        "TLS",
        security_protocol="SSL",
        ssl_cafile=files.ca,
        ssl_crlfile=files.crl,
        ssl_ciphers="ECDHE+AESGCM",
    )
    assert ask(*address, config) == 1


def test_tls_with_the_one_cipher_that_the_broker_has(kafka, files, ask):
    address, config = config_for(
        kafka, "ONE_CIPHER", security_protocol="SSL", ssl_cafile=files.ca, ssl_ciphers=ONE_CIPHER[0]
    )
    assert ask(*address, config) == 1


def test_tls_with_a_self_signed_certificate_that_is_named(kafka, files, ask):
    address, config = config_for(kafka, "SELF_SIGNED", security_protocol="SSL", ssl_cafile=files.self_signed)
    assert ask(*address, config) == 1


def test_tls_with_the_systems_cas(kafka, files, ask, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", files.ca)
    address, config = config_for(kafka, "TLS", security_protocol="SSL")
    tls._make.cache_clear()  # the variable is no option: it is read once
    try:
        assert ask(*address, config) == 1
    finally:
        tls._make.cache_clear()


def test_a_wrong_host_name_passes_where_the_check_is_turned_off(kafka, files, ask):
    (_, port), config = config_for(
        kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca, ssl_check_hostname=False
    )
    assert ask("localhost", port, config) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("listener", ["LOGIN", "SECURE"])
def test_sasl(kafka, files, ask, mechanism, listener):
    tls = {"security_protocol": "SASL_SSL", "ssl_cafile": files.ca}
    protocol = tls if listener == "SECURE" else {"security_protocol": "SASL_PLAINTEXT"}
    address, config = config_for(kafka, listener, **protocol, **sasl_options(mechanism))
    assert ask(*address, config) == 1


def test_oauthbearer_with_client_credentials_over_https(kafka, files, ask, tmp_path):
    with TokenEndpoint(tmp_path) as endpoint:
        endpoint.answers = [(200, {}, json.dumps({"access_token": unsecured_token(60), "expires_in": 60}))]
        cas = tmp_path / "cas.pem"
        cas.write_text(Path(files.ca).read_text() + Path(endpoint.ca).read_text())
        address, config = config_for(
            kafka,
            "SECURE",
            security_protocol="SASL_SSL",
            ssl_cafile=str(cas),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=endpoint.url,
            sasl_oauthbearer_client_credentials_client_id="me",
            sasl_oauthbearer_client_credentials_client_secret="hush",
        )
        assert ask(*address, config) == 1
        assert len(endpoint.asked) == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_with_signs_of_scrams_own(kafka, ask, mechanism):
    add_scram_user(kafka, "a=b,c", PASSWORD)
    options = sasl_options(mechanism, sasl_plain_username="a=b,c")
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    assert ask(*address, config) == 1


# ---------------------------------------------------------------- sessions that end


AGAIN_S = 1.2
"""Brokers take one renewal a second."""


def in_time(renew_at, began):
    """Whether a session that was opened since then is to be renewed in time: see `renew_at`."""
    lasts_s = LASTING_MS / 1000
    return began + 0.85 * lasts_s <= renew_at <= time.monotonic() + 0.95 * lasts_s


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_session_is_renewed_under_load_without_losing_a_request(kafka, files, mechanism):
    address, config = config_for(
        kafka, "LASTING", security_protocol="SASL_SSL", ssl_cafile=files.ca, **sasl_options(mechanism)
    )

    async def run():
        began = time.monotonic()
        connection = await Connection.open(*address, config)
        requests, served, renewed = connection._requests, 0, 0
        assert in_time(requests.renew_at, began)

        async def load():
            nonlocal served
            while renewed < 2 or served <= 100:
                await connection.send(MetadataRequest(topics=[]))
                served += 1

        async def renew():
            nonlocal renewed
            for _ in range(2):
                await asyncio.sleep(AGAIN_S)
                requests.renew_at = due = time.monotonic()
                await until_async(lambda due=due: in_time(requests.renew_at, due))
                renewed += 1

        await asyncio.gather(renew(), *(load() for _ in range(8)))
        assert not connection.closed
        connection.close()

    asyncio.run(run())


def test_a_broker_takes_one_renewal_a_second(kafka, files):
    address, config = config_for(
        kafka, "LASTING", security_protocol="SASL_SSL", ssl_cafile=files.ca, **sasl_options("PLAIN")
    )

    async def run():
        connection = await Connection.open(*address, config)
        connection._requests.renew_at = 0.0
        await connection.send(MetadataRequest(topics=[]))
        assert connection._requests.renew_at > 0.0
        for _ in range(100):  # more than a second may have passed on a slow machine
            connection._requests.renew_at = 0.0
            await connection.send(MetadataRequest(topics=[]))

    with pytest.raises(NodeNotReadyError, match="renewed less than a second ago"):
        asyncio.run(run())


def test_a_fetch_socket_renews_its_session(kafka, files):
    address, config = config_for(
        kafka, "LASTING", security_protocol="SASL_SSL", ssl_cafile=files.ca, **sasl_options("SCRAM-SHA-256")
    )
    began = time.monotonic()
    channel = FetchSocket(*address, config).open()
    version = channel.versions.pick(MetadataRequest)
    assert in_time(channel._renew_at, began)
    for _ in range(2):
        time.sleep(AGAIN_S)
        channel._renew_at = due = time.monotonic()
        answer_to(frame(ApiKey.METADATA, version, 7, "me", MetadataRequest(topics=[])), channel)
        assert in_time(channel._renew_at, due)
    channel.close()


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_a_session_that_ended_while_idle_is_renewed_first(kafka, files, kind):
    address, config = config_for(
        kafka, "RENEW", security_protocol="SASL_SSL", ssl_cafile=files.ca, **sasl_options("PLAIN")
    )

    async def run():
        connection = await Connection.open(*address, config)
        await asyncio.sleep(1.5 * RENEW_MS / 1000)
        await connection.send(MetadataRequest(topics=[]))
        connection.close()

    if kind == "asyncio":
        asyncio.run(run())
        return
    channel = FetchSocket(*address, config).open()
    version = channel.versions.pick(MetadataRequest)
    time.sleep(1.5 * RENEW_MS / 1000)
    answer_to(frame(ApiKey.METADATA, version, 7, "me", MetadataRequest(topics=[])), channel)
    channel.close()


def test_a_blocking_receive_over_tls_ends_by_its_timeout_and_by_closing(kafka, files):
    address, config = config_for(kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca)
    channel = FetchSocket(*address, config).open()
    with pytest.raises(KafkaTimeoutError):
        channel.receive(timeout_ms=200)
    assert channel.closed
    channel = FetchSocket(*address, config).open()

    def close():
        until(lambda: channel._busy, 30, "a receive")
        time.sleep(0.3)
        channel.close()

    closer = threading.Thread(target=close)
    closer.start()
    began = time.monotonic()
    with pytest.raises(DisconnectedError, match="by this side"):
        channel.receive(timeout_ms=600_000)
    assert this_run().quiet_s(began, time.monotonic()) < 10
    closer.join()


def test_a_renewal_that_is_refused_is_a_typed_error(kafka, files):
    class Drying(Tokens):
        def token(self):
            if self.asked:
                raise ValueError("dry")
            return super().token()

    options = sasl_options("OAUTHBEARER", sasl_oauth_token_provider=Drying())
    address, config = config_for(kafka, "RENEW", security_protocol="SASL_SSL", ssl_cafile=files.ca, **options)

    async def run():
        connection = await Connection.open(*address, config)
        await asyncio.sleep(RENEW_MS / 1000)
        with pytest.raises(Exception, match="dry"):
            await connection.send(MetadataRequest(topics=[]))
        return connection.error

    assert isinstance(asyncio.run(run()), SaslError)
