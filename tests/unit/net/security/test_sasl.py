"""PLAIN, OAUTHBEARER, GSSAPI and the time of renewal."""

from types import SimpleNamespace

import pytest

from kafka_actors.config.security import Secret
from kafka_actors.errors import SaslError
from kafka_actors.net.machines.sasl import gssapi, oauthbearer, plain, renew_at


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
    assert renew_at(100.0, 60_000, 0.0) == pytest.approx(151.0)
    assert renew_at(100.0, 60_000, 1.0) == pytest.approx(157.0)
    assert renew_at(100.0, 0, 0.5) == float("inf")
