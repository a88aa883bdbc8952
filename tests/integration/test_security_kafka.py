"""TLS and SASL against a real broker: what works, and that each thing that can't is one clear error at once."""

import asyncio
import logging
import ssl
import threading
import time

import pytest
from fakes.secure import (
    KEY_PASSWORD,
    PASSWORD,
    RENEW_MS,
    USER,
    add_scram_user,
    secure_kafka,
    unsecured_token,
)

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionFailedError,
    DisconnectedError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    SaslAuthenticationFailedError,
    SaslError,
    SslAuthenticationError,
)
from kafka_actors.net import Connection, FetchSocket, KafkaClient
from kafka_actors.protocol import ApiKey, MetadataRequest, frame

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with secure_kafka(tmp_path_factory.mktemp("secure")) as made:
        yield made


@pytest.fixture
def kafka(secure):
    return secure[0]


@pytest.fixture
def files(secure):
    return secure[1]


class Tokens:
    """A provider whose tokens hold for some seconds each."""

    def __init__(self, seconds=60.0):
        self.seconds = seconds
        self.asked = 0

    def token(self):
        self.asked += 1
        return unsecured_token(self.seconds)


def sasl_options(mechanism, **other):
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Tokens(), **other}
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        **other,
    }


def metadata_over_connection(host, port, config):
    async def run():
        connection = await Connection.open(host, port, config)
        try:
            return await connection.send(MetadataRequest(topics=[]))
        finally:
            connection.close()

    return len(asyncio.run(run()).brokers)


def metadata_over_socket(host, port, config):
    channel = FetchSocket(host, port, config).open()
    try:
        version = channel.versions.pick(MetadataRequest)
        request = MetadataRequest(topics=[])
        answer = channel.exchange(frame(ApiKey.METADATA, version, 7, "me", request))
        assert int.from_bytes(answer[:4], "big") == 7
        return 1
    finally:
        channel.close()


@pytest.fixture(params=[metadata_over_connection, metadata_over_socket], ids=["asyncio", "blocking"])
def ask(request):
    """Asks over one of the two kinds of connection; returns the number of brokers."""
    return request.param


def config_for(kafka, listener, **options):
    return kafka.address(1, listener), build(ClientConfig, options)


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


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_with_signs_of_scrams_own(kafka, ask, mechanism):
    add_scram_user(kafka, "a=b,c", PASSWORD)
    options = sasl_options(mechanism, sasl_plain_username="a=b,c")
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    assert ask(*address, config) == 1


# ---------------------------------------------------------------- what can't


def refused(ask, kind, address, config):
    with pytest.raises(kind) as caught:
        ask(*address, config)
    text = str(caught.value)
    assert f"{address[0]}:{address[1]}" in text
    assert "\n" not in text
    return text


def test_an_untrusted_certificate(kafka, files, ask):
    address, config = config_for(kafka, "TLS", security_protocol="SSL", ssl_cafile=files.other_ca)
    assert "give that CA as ssl_cafile" in refused(ask, SslAuthenticationError, address, config)


def test_an_expired_certificate(kafka, files, ask):
    address, config = config_for(kafka, "EXPIRED", security_protocol="SSL", ssl_cafile=files.ca)
    assert "it has expired" in refused(ask, SslAuthenticationError, address, config)


def test_a_revoked_certificate(kafka, files, ask):
    address, config = config_for(
        kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca, ssl_crlfile=files.revoked
    )
    assert "it was revoked" in refused(ask, SslAuthenticationError, address, config)


def test_a_wrong_host_name(kafka, files, ask):
    (_, port), config = config_for(kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca)
    assert "'localhost'" in refused(ask, SslAuthenticationError, ("localhost", port), config)


def test_no_client_certificate_where_one_is_required(kafka, files, ask):
    address, config = config_for(kafka, "MTLS", security_protocol="SSL", ssl_cafile=files.ca)
    assert "the broker refused TLS" in refused(ask, SslAuthenticationError, address, config)


def test_tls_to_a_port_without_it(kafka, files, ask):
    config = build(ClientConfig, security_protocol="SSL", ssl_cafile=files.ca)
    text = refused(ask, (SslAuthenticationError, ConnectionFailedError), kafka.address(1), config)
    assert "does not speak TLS" in text


def test_no_tls_to_a_port_that_wants_it(kafka, ask):
    with pytest.raises(Exception, match="TLS") as caught:
        ask(*kafka.address(1, "TLS"), build(ClientConfig, {}))
    assert not caught.value.retriable


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(kafka, ask, mechanism):
    options = sasl_options(mechanism, sasl_plain_password="wrong-hush")
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    text = refused(ask, SaslAuthenticationFailedError, address, config)
    assert "hush" not in text


def test_a_token_that_is_over(kafka, ask):
    options = sasl_options("OAUTHBEARER", sasl_oauth_token_provider=Tokens(-60))
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    refused(ask, AuthenticationError, address, config)


def test_a_provider_that_fails(kafka, ask):
    class Broken:
        def token(self):
            raise OSError("no identity provider")

    options = sasl_options("OAUTHBEARER", sasl_oauth_token_provider=Broken())
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    assert "OSError: no identity provider" in refused(ask, SaslError, address, config)


def test_sasl_to_a_listener_without_it(kafka, ask):
    config = build(ClientConfig, security_protocol="SASL_PLAINTEXT", **sasl_options("PLAIN"))
    refused(ask, AuthenticationError, kafka.address(1), config)


def test_no_sasl_to_a_listener_that_wants_it_is_a_hint(kafka):
    with pytest.raises(Exception, match="a listener that wants SASL does that"):
        metadata_over_connection(*kafka.address(1, "LOGIN"), build(ClientConfig, {}))


# ---------------------------------------------------------------- a client as a whole


def bootstrap(config, timeout_ms=20_000):
    async def run():
        client = KafkaClient(config)
        try:
            await client.bootstrap(timeout_ms)
        finally:
            await client.close()

    began = time.monotonic()
    asyncio.run(run())
    return time.monotonic() - began


def test_a_wrong_password_ends_bootstrapping_at_once(kafka, caplog):
    caplog.set_level(logging.DEBUG)
    options = sasl_options("SCRAM-SHA-512", sasl_plain_password="wrong-hush")
    config = build(
        ClientConfig,
        bootstrap_servers=kafka.bootstrap("LOGIN") + ",127.0.0.1:1",
        security_protocol="SASL_PLAINTEXT",
        request_timeout_ms=600_000,
        **options,
    )
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        bootstrap(config, 600_000)
    shown = "".join([repr(config), str(config), repr(caught.value), caplog.text])
    assert "hush" not in shown


def test_a_bad_certificate_ends_bootstrapping_at_once(kafka, files):
    config = build(
        ClientConfig,
        bootstrap_servers=kafka.bootstrap("TLS"),
        security_protocol="SSL",
        ssl_cafile=files.other_ca,
    )
    with pytest.raises(SslAuthenticationError):
        bootstrap(config, 600_000)


def test_tls_to_a_port_without_it_is_not_tried_for_ever(kafka, files):
    config = build(
        ClientConfig,
        bootstrap_servers=kafka.bootstrap_servers,
        security_protocol="SSL",
        ssl_cafile=files.ca,
    )
    with pytest.raises((NoBrokersAvailable, SslAuthenticationError), match="does not speak TLS"):
        bootstrap(config, 1_000)


def test_a_key_that_cannot_be_read_fails_before_anything_connects(files):
    with pytest.raises(ConfigError, match=r"ssl_keyfile: .*wrong ssl_password") as caught:
        KafkaClient(
            security_protocol="SSL",
            ssl_certfile=files.certificate,
            ssl_keyfile=files.key,
            ssl_password="not-that-hush",
        )
    assert "hush" not in str(caught.value)


# ---------------------------------------------------------------- sessions that end


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_theme_23_a_session_is_renewed_under_load_without_losing_a_request(kafka, files, mechanism):
    address, config = config_for(
        kafka, "RENEW", security_protocol="SASL_SSL", ssl_cafile=files.ca, **sasl_options(mechanism)
    )

    async def run():
        connection = await Connection.open(*address, config)
        renewals = [connection._renew_at]
        served = 0

        async def load():
            nonlocal served
            until = time.monotonic() + 3.2 * RENEW_MS / 1000
            while time.monotonic() < until:
                await connection.send(MetadataRequest(topics=[]))
                served += 1
                if connection._renew_at != renewals[-1]:
                    renewals.append(connection._renew_at)

        await asyncio.gather(*(load() for _ in range(8)))
        assert not connection.closed
        connection.close()
        return served, renewals

    served, renewals = asyncio.run(run())
    assert served > 100
    assert len(renewals) >= 3


def test_theme_23_a_fetch_socket_renews_its_session(kafka, files):
    address, config = config_for(
        kafka, "RENEW", security_protocol="SASL_SSL", ssl_cafile=files.ca, **sasl_options("SCRAM-SHA-256")
    )
    channel = FetchSocket(*address, config).open()
    version = channel.versions.pick(MetadataRequest)
    renewals = {channel._renew_at}
    until = time.monotonic() + 3.2 * RENEW_MS / 1000
    while time.monotonic() < until:
        channel.exchange(frame(ApiKey.METADATA, version, 7, "me", MetadataRequest(topics=[])))
        renewals.add(channel._renew_at)
        time.sleep(0.01)
    channel.close()
    assert len(renewals) >= 3


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_theme_23_a_session_that_ended_while_idle_is_renewed_first(kafka, files, kind):
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
    channel.exchange(frame(ApiKey.METADATA, version, 7, "me", MetadataRequest(topics=[])))
    channel.close()


def test_a_blocking_receive_over_tls_ends_by_its_timeout_and_by_closing(kafka, files):
    address, config = config_for(kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca)
    channel = FetchSocket(*address, config).open()
    with pytest.raises(KafkaTimeoutError):
        channel.receive(timeout_ms=200)
    assert channel.closed
    channel = FetchSocket(*address, config).open()
    closer = threading.Timer(0.3, channel.close)
    closer.start()
    began = time.monotonic()
    with pytest.raises(DisconnectedError, match="by this side"):
        channel.receive(timeout_ms=30_000)
    assert time.monotonic() - began < 10
    closer.join()


def test_theme_23_a_renewal_that_is_refused_is_a_typed_error(kafka, files):
    class Drying(Tokens):
        def token(self):
            if self.asked:
                raise OSError("dry")
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
