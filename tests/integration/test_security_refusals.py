"""TLS and SASL against a real broker: each thing that can't be is one clear error at once, without a secret in it."""

import logging
import traceback

import pytest
from fakes.asking import Tokens, config_for, over_connection, sasl_options
from fakes.secure import ONE_CIPHER, PASSWORD, unsecured_token

import kafka_actors as ka
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionFailedError,
    NoBrokersAvailable,
    SaslAuthenticationFailedError,
    SaslError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kafka_actors.net import KafkaClient

WRONG = sasl_options("SCRAM-SHA-512", sasl_plain_password="wrong-hush")


@pytest.fixture
def kafka(secure):
    return secure[0]


@pytest.fixture
def files(secure):
    return secure[1]


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


def test_a_self_signed_certificate(kafka, files, ask):
    address, config = config_for(kafka, "SELF_SIGNED", security_protocol="SSL", ssl_cafile=files.ca)
    text = refused(ask, SslAuthenticationError, address, config)
    assert text.endswith("it is self-signed, and ssl_cafile does not hold it")


def test_a_certificate_that_no_ca_of_the_system_issued(kafka, ask):
    address, config = config_for(kafka, "TLS", security_protocol="SSL")
    assert "give that CA as ssl_cafile" in refused(ask, SslAuthenticationError, address, config)


def test_a_revoked_certificate(kafka, files, ask):
    address, config = config_for(
        kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca, ssl_crlfile=files.revoked
    )
    assert "it was revoked" in refused(ask, SslAuthenticationError, address, config)


def test_a_list_of_revoked_certificates_of_another_ca(kafka, files, ask):
    address, config = config_for(
        kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca, ssl_crlfile=files.other_crl
    )
    text = refused(ask, SslAuthenticationError, address, config)
    assert text.endswith("ssl_crlfile holds no list of its CA")


def test_ciphers_that_the_broker_does_not_have(kafka, files, ask):
    other = ONE_CIPHER[0].replace("256", "128").replace("384", "256")
    address, config = config_for(
        kafka, "ONE_CIPHER", security_protocol="SSL", ssl_cafile=files.ca, ssl_ciphers=other
    )
    assert "the broker refused TLS" in refused(ask, SslAuthenticationError, address, config)


def test_a_wrong_host_name(kafka, files, ask):
    (_, port), config = config_for(kafka, "TLS", security_protocol="SSL", ssl_cafile=files.ca)
    assert "'localhost'" in refused(ask, SslAuthenticationError, ("localhost", port), config)


def test_no_client_certificate_where_one_is_required(kafka, files, ask):
    address, config = config_for(kafka, "MTLS", security_protocol="SSL", ssl_cafile=files.ca)
    assert "the broker refused TLS" in refused(ask, SslAuthenticationError, address, config)


def test_a_clients_certificate_that_the_broker_does_not_trust(kafka, files, ask):
    address, config = config_for(
        kafka, "MTLS", security_protocol="SSL", ssl_cafile=files.ca, ssl_certfile=files.stranger
    )
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


def test_a_mechanism_that_is_not_enabled(kafka, files, ask):
    options = {**sasl_options("SCRAM-SHA-512"), "sasl_mechanism": "SCRAM-SHA-256"}
    address, config = config_for(kafka, "ONE_LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    text = refused(ask, UnsupportedSaslMechanismError, address, config)
    assert "does not accept SCRAM-SHA-256; enabled: SCRAM-SHA-512" in text


def test_a_token_that_is_over(kafka, ask):
    options = sasl_options("OAUTHBEARER", sasl_oauth_token_provider=Tokens(-60))
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    refused(ask, AuthenticationError, address, config)


@pytest.mark.parametrize(
    ("failure", "kind"), [(OSError("no route"), ConnectionFailedError), (ValueError("no key"), SaslError)]
)
def test_a_provider_that_fails(kafka, ask, failure, kind):
    """An address that can't be reached may be there again soon: that error is retriable."""

    class Broken:
        def token(self):
            raise failure

    options = sasl_options("OAUTHBEARER", sasl_oauth_token_provider=Broken())
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    assert f"{type(failure).__name__}: no " in refused(ask, kind, address, config)


def test_sasl_to_a_listener_without_it(kafka, ask):
    config = build(ClientConfig, security_protocol="SASL_PLAINTEXT", **sasl_options("PLAIN"))
    refused(ask, AuthenticationError, kafka.address(1), config)


def test_no_sasl_to_a_listener_that_wants_it_is_a_hint(kafka):
    with pytest.raises(Exception, match="a listener that wants SASL does that"):
        over_connection(*kafka.address(1, "LOGIN"), build(ClientConfig, {}))


# ---------------------------------------------------------------- the consumer as a whole

TLS = {"security_protocol": "SSL"}
REFUSED = {  # listener (None: the one in plaintext), options, error, what it says
    "expired": ("EXPIRED", TLS, SslAuthenticationError, "it has expired"),
    "self-signed": ("SELF_SIGNED", TLS, SslAuthenticationError, "it is self-signed"),
    "host-name": ("TLS", {**TLS, "at": "localhost"}, SslAuthenticationError, "'localhost'"),
    "no-client-certificate": ("MTLS", TLS, SslAuthenticationError, "the broker refused TLS"),
    "tls-to-plaintext": (None, TLS, SslAuthenticationError, "the port does not speak TLS"),
    "plaintext-to-tls": ("TLS", {}, NoBrokersAvailable, "the port speaks TLS"),
    "sasl-to-none": (None, sasl_options("PLAIN"), AuthenticationError, "SASL"),
    "mechanism": ("ONE_LOGIN", sasl_options("PLAIN"), UnsupportedSaslMechanismError, "does not accept PLAIN"),
    "password": ("LOGIN", WRONG, SaslAuthenticationFailedError, "invalid credentials"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_consumer_is_refused_once_and_not_for_ever(kafka, files, group_id, case):
    listener, given, kind, said = REFUSED[case]
    options = {"security_protocol": "SASL_PLAINTEXT"} if "sasl_mechanism" in given else {}
    options |= {"ssl_cafile": files.ca} if given.get("security_protocol") == "SSL" else {}
    options |= given
    port = kafka.address(1, listener)[1]
    server = f"{options.pop('at', '127.0.0.1')}:{port}"
    servers = [server]
    if issubclass(
        kind, AuthenticationError
    ):  # waits for no other server; else one that is down may come back
        servers.append("127.0.0.1:1")
    with pytest.raises(kind, match=said) as caught:
        consume(bootstrap_servers=servers, group_id=group_id, request_timeout_ms=600_000, **options)
    assert server in str(caught.value)


def consume(**options):
    with ka.Consumer(["t"], **options) as consumer:
        consumer.poll_batch(timeout_ms=600_000)


# ---------------------------------------------------------------- secrets


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_no_log_and_no_traceback_shows_a_secret(kafka, ask, caplog, mechanism):
    """Not even one with the variables in it, as error reporters send them."""
    caplog.set_level(logging.DEBUG, logger="kafka_actors")
    options = sasl_options(mechanism, sasl_plain_password="wrong-hush")
    secrets = ["hush"]
    if mechanism == "OAUTHBEARER":
        token = unsecured_token(-60)
        secrets = [token, token.split(".")[1]]
        options = sasl_options(mechanism, sasl_oauth_token_provider=OneToken(token))
    address, config = config_for(kafka, "LOGIN", security_protocol="SASL_PLAINTEXT", **options)
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        ask(*address, config)
    report = reported(caught.value)
    assert "_exchange" in report  # the frames are there, and so are their variables:
    assert "correlation_id = " in report
    shown = [report, repr(caught.value), repr(config), str(config), caplog.text]
    assert not [secret for secret in secrets if secret in "".join(shown)]


class OneToken:
    """A provider of one token."""

    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token


def reported(error):
    """The traceback and its causes', with the variables of each frame of ours."""
    whole = traceback.TracebackException.from_exception(error, capture_locals=True)
    found, parts = whole, []
    while found is not None:
        found.stack = traceback.StackSummary.from_list(
            frame for frame in found.stack if "/kafka_actors/" in frame.filename
        )
        parts += found.format(chain=False)
        found = found.__cause__ or found.__context__
    return "".join(parts)


def test_a_consumers_log_shows_no_secret(kafka, group_id, caplog):
    caplog.set_level(logging.DEBUG, logger="kafka_actors")
    topic = kafka.create_topic(f"l-{group_id}")
    options = sasl_options("PLAIN", security_protocol="SASL_PLAINTEXT")
    with ka.Consumer(
        [topic], bootstrap_servers=kafka.bootstrap("LOGIN"), group_id=group_id, **options
    ) as consumer:
        consumer.poll_batch(timeout_ms=1_000)
        shown = repr(consumer)
    assert any(record.name.startswith("kafka_actors") for record in caplog.records)
    assert PASSWORD not in caplog.text + shown


@pytest.mark.parametrize("password", ["not-that-hush", None])
def test_a_key_that_cannot_be_read_fails_before_anything_connects(files, password):
    options = {} if password is None else {"ssl_password": password}
    why = "does the key need ssl_password" if password is None else "a wrong ssl_password"
    config = build(
        ClientConfig,
        security_protocol="SSL",
        ssl_certfile=files.certificate,
        ssl_keyfile=files.key,
        **options,
    )
    with pytest.raises(ConfigError, match=rf"ssl_keyfile: .*{why}") as caught:
        KafkaClient(config)
    assert "hush" not in reported(caught.value)


def test_ciphers_that_openssl_does_not_know_fail_before_anything_connects():
    with pytest.raises(ConfigError, match="ssl_ciphers: can't be used"):
        KafkaClient(security_protocol="SSL", ssl_ciphers="NO-SUCH-CIPHER")
