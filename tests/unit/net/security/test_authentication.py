"""SASL as Kafka requests: versions, error codes, the session's lifetime."""

import pytest

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    CorrelationIdError,
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    SaslError,
    UnsupportedSaslMechanismError,
)
from kafka_actors.net.machines.api_versions import ApiVersionTable
from kafka_actors.net.security.authentication import authenticate
from kafka_actors.protocol import (
    ApiKey,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    decode,
    decode_header,
    peek_request,
    response_frame,
)

VERSIONS = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


def table(versions=VERSIONS):
    return ApiVersionTable({int(key): limits for key, limits in versions.items()})


def steps_of(versions=VERSIONS, **options):
    given = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "ann", "sasl_plain_password": "hush"}
    config = build(ClientConfig, security_protocol="SASL_PLAINTEXT", **{**given, **options})
    return authenticate(config, "kafka", 9092, table(versions))


def read(sent):
    key, version, correlation_id = peek_request(sent[4:])
    _, body = decode_header(key, version, "request", sent[4:])
    return key, version, correlation_id, body


def answer(sent, response):
    key, version, correlation_id, _ = read(sent)
    return response_frame(key, version, correlation_id, response)[4:]


def run(steps, *responses):
    sent = next(steps)
    for response in responses[:-1]:
        sent = steps.send(answer(sent, response))
    try:
        steps.send(answer(sent, responses[-1]))
    except StopIteration as done:
        return done.value
    raise AssertionError("it goes on")


def test_the_lifetime_of_the_session_is_returned():
    done = SaslAuthenticateResponse(session_lifetime_ms=60_000)
    assert run(steps_of(), SaslHandshakeResponse(mechanisms=["PLAIN"]), done) == 60_000


def test_an_old_broker_names_no_lifetime():
    old = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 0)}
    assert run(steps_of(old), SaslHandshakeResponse(), SaslAuthenticateResponse()) == 0


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are():
    refusal = SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "OAUTHBEARER"])
    with pytest.raises(
        UnsupportedSaslMechanismError, match="kafka:9092 does not accept PLAIN; enabled: GSSAPI, OAUTHBEARER"
    ):
        run(steps_of(), refusal)


def test_a_listener_without_sasl():
    says = "kafka:9092: the port does not speak SASL, and security_protocol asks for it"
    with pytest.raises(IllegalSaslStateError, match=says):
        run(steps_of(), SaslHandshakeResponse(error_code=34))


def test_a_refusal_has_the_brokers_words_and_no_secret():
    refusal = SaslAuthenticateResponse(error_code=58, error_message="Authentication failed: no such user")
    with pytest.raises(SaslAuthenticationFailedError, match="kafka:9092: Authentication failed") as caught:
        run(steps_of(), SaslHandshakeResponse(), refusal)
    assert "hush" not in str(caught.value)
    assert not caught.value.retriable


def test_an_answer_to_something_else():
    steps = steps_of()
    sent = next(steps)
    with pytest.raises(CorrelationIdError):
        steps.send(response_frame(ApiKey.SASL_HANDSHAKE, 1, 99, SaslHandshakeResponse())[4:])
    assert sent


def test_bytes_that_are_no_answer():
    steps = steps_of()
    sent = next(steps)
    with pytest.raises(SaslError, match="kafka:9092: an answer to SASL can't be read"):
        steps.send(answer(sent, SaslHandshakeResponse())[:6])


def test_a_broker_without_sasl_requests():
    with pytest.raises(SaslError, match="does not speak SASL as Kafka does"):
        run(steps_of({ApiKey.SASL_HANDSHAKE: (0, 0)}), SaslHandshakeResponse())
    with pytest.raises(SaslError, match="does not speak SASL as Kafka does"):
        run(steps_of({}), SaslHandshakeResponse())


def test_an_error_of_the_provider_names_the_broker_once():
    class Broken:
        def token(self):
            raise ValueError("no luck")

    steps = steps_of(
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Broken(),
        sasl_plain_username=None,
        sasl_plain_password=None,
    )
    with pytest.raises(SaslError) as caught:
        next(steps)
    assert str(caught.value).startswith(
        "kafka:9092: OAUTHBEARER: the token provider failed: ValueError: no luck"
    )
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("token", [None, b"bytes", 7])
def test_a_token_that_is_no_text(token):
    class Odd:
        def token(self):
            return token

    options = {"sasl_plain_username": None, "sasl_plain_password": None}
    with pytest.raises(SaslError, match="not a str"):
        next(steps_of(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Odd(), **options))


def test_the_token_goes_in_the_request():
    steps = steps_of()
    sent = steps.send(answer(next(steps), SaslHandshakeResponse()))
    key, version, correlation_id, body = read(sent)
    assert (key, version, correlation_id) == (ApiKey.SASL_AUTHENTICATE, 2, 1)
    assert decode(key, version, "request", body).auth_bytes == b"\0ann\0hush"
