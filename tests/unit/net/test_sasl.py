"""PLAIN, OAUTHBEARER, GSSAPI and the time of renewal; SCRAM against the exchanges that the RFCs print, and against brokers that cheat."""

import base64
import hashlib
import hmac
from types import SimpleNamespace

import pytest

from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError
from kafka_actors.net.machines.sasl import (
    MAX_ITERATIONS,
    aws_msk_iam,
    gssapi,
    oauthbearer,
    plain,
    renew_at,
    scram,
)


def ended(steps, message):
    with pytest.raises(StopIteration):
        steps.send(message)


def test_plain():
    steps = plain("ann", Secret("sécret"))
    assert next(steps) == b"\0ann\0s\xc3\xa9cret"
    ended(steps, b"")


def test_oauthbearer():
    steps = oauthbearer(Secret("tok.en-1"))
    assert next(steps) == b"n,,\x01auth=Bearer tok.en-1\x01\x01"
    ended(steps, b"")


def test_oauthbearer_with_extensions():
    steps = oauthbearer(Secret("t"), {"logicalCluster": "lkc-1", "pool": "p 2"})
    assert next(steps) == b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01pool=p 2\x01\x01"


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "a\n", "é"])
def test_a_token_that_cannot_be_sent_is_not_shown(token):
    with pytest.raises(SaslError, match="bearer token") as caught:
        next(oauthbearer(Secret(token)))
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    "extension", [{"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "\x01"}, {"a": 1}, {1: "a"}]
)
def test_an_extension_that_cannot_be_sent(extension):
    with pytest.raises(SaslError, match="SASL extension"):
        next(oauthbearer(Secret("t"), extension))


def test_a_token_that_is_refused_is_acknowledged_so_that_the_broker_says_why():
    steps = oauthbearer(Secret("t"))
    next(steps)
    assert steps.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError):
        steps.send(b"")


class Context:
    """A security context that takes `rounds` tokens of the broker."""

    def __init__(self, rounds):
        self.left = rounds
        self.seen = []

    @property
    def complete(self):
        return self.left < 0

    def step(self, token=None):
        self.seen.append(token)
        self.left -= 1
        return b"token" if self.left >= 0 else None

    def unwrap(self, message):
        return SimpleNamespace(message=message[1:])

    def wrap(self, message, encrypt):
        assert not encrypt
        return SimpleNamespace(message=b"W" + message)


def test_gssapi_chooses_no_layer():
    context = Context(1)
    steps = gssapi(context)
    assert next(steps) == b"token"
    assert steps.send(b"from broker") == b""
    assert steps.send(b"W\x07\x00\xff\xff") == b"W\x01\x00\x00\x00"
    ended(steps, b"")
    assert context.seen == [None, b"from broker"]


@pytest.mark.parametrize("offer", [b"W", b"W\x06\x00\xff\xff", b"W\x01\x00"])
def test_gssapi_with_a_layer_that_kafka_does_not_have(offer):
    steps = gssapi(Context(0))
    next(steps)
    with pytest.raises(SaslError, match="security layer"):
        steps.send(offer)


def test_a_session_is_renewed_before_its_end():
    assert renew_at(100.0, 100.0, 60_000, 0.0) == pytest.approx(151.0)
    assert renew_at(100.0, 100.0, 60_000, 1.0) == pytest.approx(157.0)
    assert renew_at(100.0, 100.0, 0, 0.5) == float("inf")


def test_a_session_is_not_renewed_again_within_a_second():
    assert renew_at(100.0, 100.0, 500, 0.0) == pytest.approx(100.425)
    assert renew_at(100.0, 100.0, 500, 0.0, renewed=True) == pytest.approx(101.1)
    assert renew_at(100.0, 100.0, 60_000, 0.0, renewed=True) == pytest.approx(151.0)
    # A token was waited for before the broker got the first request, from which it counts.
    assert renew_at(100.0, 103.0, 1_500, 0.0, renewed=True) == pytest.approx(104.1)


# ---------------------------------------------------------------- SCRAM

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


def has_ended(steps, message):
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
    assert has_ended(steps, server_final.encode())


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
    assert has_ended(steps, b"v=" + base64.b64encode(answer))


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


# ---------------------------------------------------------------- AWS_MSK_IAM


def test_aws_msk_iam_ends_with_the_id_of_the_request():
    steps = aws_msk_iam(Secret("{}"))
    assert next(steps) == b"{}"
    ended(steps, b'{"version": "2020_10_22", "request-id": "4c5d"}')


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"version": "2030_01_01", "request-id": "a"}',
        b'{"version": "2020_10_22"}',
    ],
)
def test_an_answer_that_is_not_amazons(answer):
    steps = aws_msk_iam(Secret("{}"))
    next(steps)
    with pytest.raises(SaslError, match="not that of Amazon MSK"):
        steps.send(answer)
