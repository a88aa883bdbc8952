"""SCRAM against the exchanges that the RFCs print, and against brokers that cheat."""

import base64
import hashlib
import hmac

import pytest

from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError
from kafka_actors.net.machines.scram import MAX_ITERATIONS, scram

RFC_5802 = (
    "sha1",
    "fyko+d2lbbFgONRv9qkxdawL",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    "sha256",
    "rOprNGfwEbeRWgbNEkqO",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def begin(nonce="abc", algorithm="sha256"):
    steps = scram(algorithm, "user", Secret("pencil"), nonce)
    next(steps)
    return steps


def ended(steps, message):
    try:
        steps.send(message)
    except StopIteration:
        return True
    return False


@pytest.mark.parametrize(
    ("algorithm", "nonce", "server_first", "client_final", "server_final"), [RFC_5802, RFC_7677]
)
def test_the_exchange_that_the_rfc_prints(algorithm, nonce, server_first, client_final, server_final):
    steps = scram(algorithm, "user", Secret("pencil"), nonce)
    assert next(steps) == f"n,,n=user,r={nonce}".encode()
    assert steps.send(server_first.encode()) == client_final.encode()
    assert ended(steps, server_final.encode())


def test_sha_512_proves_the_password_and_checks_the_brokers_proof():
    salt, first = b"salt" * 4, b"r=abcdef,s=c2FsdHNhbHRzYWx0c2FsdA==,i=8192"
    steps = begin(algorithm="sha512")
    final = steps.send(first)
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", salt, 8192)
    bare, _, proof = final.rpartition(b",p=")
    signed = b",".join((b"n=user,r=abc", first, bare))
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    key = bytes(
        a ^ b for a, b in zip(base64.b64decode(proof), hmac.digest(stored, signed, "sha512"), strict=True)
    )
    assert hashlib.sha512(key).digest() == stored
    answer = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    assert ended(steps, b"v=" + base64.b64encode(answer))


def test_a_users_name_is_escaped():
    assert next(scram("sha256", "a=b,c", Secret("x"), "n")) == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    ("iterations", "accepted"),
    [
        (1, False),
        (4095, False),
        (4096, True),
        (16384, True),
        (MAX_ITERATIONS + 1, False),
        (9999999999, False),
    ],
)
def test_iterations_have_bounds(iterations, accepted):
    message = f"r=abcd,s=c2FsdA==,i={iterations}".encode()
    if accepted:
        assert begin().send(message)
        return
    with pytest.raises(SaslError, match=f"asks for {iterations} iterations"):
        begin().send(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=abcd",
        b"r=abc,s=c2FsdA==,i=4096",  # nothing added to our nonce
        b"r=xbcd,s=c2FsdA==,i=4096",
        b"r=abcd,s=!,i=4096",
        b"r=abcd,s=c2F,i=4096",
        b"r=abcd,s=c2FsdA==,i=-4096",
        b"r=abcd,s=c2FsdA==,i=04096",
        b"m=x,r=abcd,s=c2FsdA==,i=4096",
        b"\xff\xfe",
        b"e=other-error",
    ],
)
def test_a_first_answer_against_the_rules(message):
    with pytest.raises(SaslError, match="SCRAM"):
        begin().send(message)


@pytest.mark.parametrize(
    "message", [b"", b"v=", b"v=AAAA", b"v=!", b"e=invalid-proof", b"\xff", RFC_5802[4].encode()]
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(message):
    _, nonce, first, _, _ = RFC_7677
    steps = begin(nonce)
    steps.send(first.encode())
    with pytest.raises(SaslError, match="SCRAM"):
        steps.send(message)
