"""SASL on a broker's side, against the clients' own machines."""

from __future__ import annotations

import pytest
from fakes.fake_wire import Wire

from kafka_actors.protocol import (
    ApiVersionsRequest,
    InitProducerIdRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

ASK = InitProducerIdRequest(transactional_id=None)


def test_nothing_is_answered_before_authentication() -> None:
    wire = Wire(users={"me": "secret"})
    assert wire.ask(ASK, 4) is None
    assert wire.ask(SaslAuthenticateRequest(b"\0me\0secret"), 2, "no handshake") is None
    assert wire.closed == {"client", "no handshake"}


def test_between_the_handshake_and_the_last_token_a_broker_takes_tokens_only() -> None:
    wire = Wire(users={"me": "secret"})
    for on, request, version in (
        ("twice", SaslHandshakeRequest("PLAIN"), 1),
        ("versions", ApiVersionsRequest(), 2),
        ("too early", ASK, 4),
    ):
        assert wire.ask(SaslHandshakeRequest("PLAIN"), 1, on).error_code == 0
        assert wire.ask(request, version, on).error_code == 34
        assert on in wire.closed


def test_plain() -> None:
    wire = Wire(users={"me": "secret"})
    assert wire.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    assert wire.ask(SaslAuthenticateRequest(b"\0me\0secret"), 2).error_code == 0
    assert wire.ask(ASK, 4).error_code == 0
    assert wire.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 34, "it is authenticated already"
    assert wire.ask(SaslAuthenticateRequest(b""), 2).error_code == 34
    assert not wire.closed


@pytest.mark.parametrize("token", [b"\0me\0wrong", b"\0you\0secret", b"nonsense", b"\0me\0\xff"])
def test_a_wrong_password_is_an_error_and_the_end_of_the_connection(token: bytes) -> None:
    wire = Wire(users={"me": "secret"})
    wire.ask(SaslHandshakeRequest("PLAIN"), 1)
    assert wire.ask(SaslAuthenticateRequest(token), 2).error_code == 58
    assert wire.closed == {"client"}


def test_mechanisms_that_brokers_do_not_have_are_refused_by_name_and_end_the_connection() -> None:
    wire = Wire(users={"me": "secret"})
    answer = wire.ask(SaslHandshakeRequest("GSSAPI"), 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert wire.closed == {"client"}


@pytest.mark.parametrize("token", [b"n,,r=abc", b"n,,n=me", b"n,,", b"nonsense"])
def test_a_first_message_of_scram_without_name_or_nonce_is_an_error(token: bytes) -> None:
    wire = Wire(users={"me": "secret"})
    wire.ask(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    assert wire.ask(SaslAuthenticateRequest(token), 2).error_code == 58
    assert wire.closed == {"client"}


def test_without_users_there_is_no_sasl() -> None:
    wire = Wire()
    assert wire.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == 34
    assert wire.ask(SaslAuthenticateRequest(b""), 2).error_code == 34
    assert wire.ask(ASK, 4).error_code == 0


def test_after_handshake_0_tokens_come_without_requests() -> None:
    for password, answer in [(b"secret", b"\0\0\0\0"), (b"wrong", b"")]:
        wire = Wire(users={"me": "secret"})
        assert wire.ask(SaslHandshakeRequest("PLAIN"), 0).error_code == 0
        token = b"\0me\0" + password
        wire.cluster.received(wire._links["client"], len(token).to_bytes(4) + token, 0.0)
        wire.poll()
        assert wire.raw() == answer
        assert bool(wire.closed) == (password == b"wrong")


def test_a_session_that_ends_is_renewed_on_its_connection_by_the_same_user_or_the_connection_closes() -> None:
    wire = Wire(users={"me": "secret", "you": "secret"}, config={"connections.max.reauth.ms": 2_000})

    def login(user: str, on: str) -> tuple[int, int]:
        assert wire.ask(SaslHandshakeRequest("PLAIN"), 1, on).error_code == 0
        answer = wire.ask(SaslAuthenticateRequest(f"\0{user}\0secret".encode()), 2, on)
        return answer.error_code, answer.session_lifetime_ms

    for on in ("renews", "changes", "forgets"):
        assert login("me", on) == (0, 2_000)
    wire.pass_time(1.5)
    assert login("me", "renews") == (0, 2_000)
    assert wire.ask(SaslHandshakeRequest("PLAIN"), 1, "renews").error_code == 34, "once a second"
    assert login("you", "changes") == (58, 0)
    wire.pass_time(1.0)
    assert wire.ask(ASK, 4, "renews").error_code == 0
    assert wire.ask(ASK, 4, "forgets") is None
    assert wire.closed == {"changes", "forgets"}
