"""Tokens by client credentials: what an answer says, how long a token is used, and what a failed renewal means. The endpoint is a function."""

import itertools
import threading

import pytest

from kafka_actors.config import ClientConfig, build
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.net.security import oauth

URL = "https://idp.example.org/token"
_numbers = itertools.count()


class Endpoint:
    """Answers with tokens that are numbered, each good for 100 s; or raises `error`."""

    def __init__(self, monkeypatch):
        self.now, self.asked, self.error, self.gate = 1_000.0, 0, None, None
        self.config = build(
            ClientConfig,
            bootstrap_servers="b:9092",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=URL,
            sasl_oauthbearer_client_credentials_client_id=f"client-{next(_numbers)}",
            sasl_oauthbearer_client_credentials_client_secret="hush",
        )
        monkeypatch.setattr(oauth, "_fetch", self.fetch)

    def fetch(self, config, sleep):
        self.asked += 1
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            raise self.error
        return Secret(f"token {self.asked}"), 100.0

    def token(self):
        return oauth.client_credentials(self.config, lambda: self.now).reveal()

    def renewals_end(self):
        for thread in threading.enumerate():
            if thread.name == "kafka-actors-token":
                thread.join()


@pytest.fixture
def endpoint(monkeypatch):
    return Endpoint(monkeypatch)


def test_a_token_is_used_until_most_of_its_life_is_over_and_then_renewed_behind_it(endpoint):
    assert endpoint.token() == "token 1"
    endpoint.now += 79.0
    assert (endpoint.token(), endpoint.asked) == ("token 1", 1)
    endpoint.now += 2.0
    assert endpoint.token() == "token 1", "nobody waits for the renewal"
    endpoint.renewals_end()
    assert (endpoint.token(), endpoint.asked) == ("token 2", 2)


def test_a_renewal_is_asked_for_once_however_many_want_it(endpoint):
    endpoint.token()
    endpoint.now += 90.0
    endpoint.gate = threading.Event()
    assert [endpoint.token() for _ in range(5)] == ["token 1"] * 5
    endpoint.gate.set()
    endpoint.renewals_end()
    assert endpoint.asked == 2


def test_where_the_system_gives_no_thread_the_renewal_is_waited_for(endpoint, monkeypatch):
    def no_more(_):
        raise RuntimeError("can't start new thread")

    endpoint.token()
    endpoint.now += 90.0
    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", no_more)
        endpoint.token()
    assert (endpoint.token(), endpoint.asked) == ("token 2", 2)


def test_a_failed_renewal_is_tried_again_in_a_moment_and_the_old_token_used_until_it_expires(
    endpoint, caplog
):
    endpoint.token()
    endpoint.error = ConnectionFailedError("away")
    endpoint.now += 85.0
    assert endpoint.token() == "token 1"
    endpoint.renewals_end()
    assert "the token is used for its last 15 s, because it can't be renewed: away" in caplog.text
    assert (endpoint.token(), endpoint.asked) == ("token 1", 2)
    endpoint.now += 6.0
    endpoint.token()
    endpoint.renewals_end()
    assert endpoint.asked == 3
    endpoint.now += 10.0
    with pytest.raises(ConnectionFailedError, match="away"):
        endpoint.token()
    endpoint.error = None
    assert endpoint.token().startswith("token ")


def test_a_token_that_a_broker_refused_is_not_used_again(endpoint):
    token = oauth.client_credentials(endpoint.config, lambda: endpoint.now)
    assert oauth.forget(endpoint.config, token, endpoint.now + 1.0)
    assert endpoint.token() == "token 2"
    assert not oauth.forget(endpoint.config, Secret("token 2"), endpoint.now - 1.0), (
        "it is newer than the login"
    )


def test_a_refused_token_that_was_replaced_meanwhile_leaves_the_new_one(endpoint):
    old = oauth.client_credentials(endpoint.config, lambda: endpoint.now)
    assert oauth.forget(endpoint.config, old, endpoint.now + 1.0)
    assert endpoint.token() == "token 2"
    assert oauth.forget(endpoint.config, old, endpoint.now - 1.0), "another try sends the new one"
    assert endpoint.token() == "token 2"


def test_a_token_that_was_never_cached_is_not_forgotten(endpoint):
    assert not oauth.forget(endpoint.config, Secret("another"), endpoint.now)


def test_clients_with_other_options_have_tokens_of_their_own(endpoint, monkeypatch):
    endpoint.token()
    other = Endpoint(monkeypatch)
    assert (other.token(), other.asked) == ("token 1", 1)


@pytest.mark.parametrize(
    ("body", "lifetime"),
    [
        (b'{"access_token": "t", "expires_in": 300}', 300.0),
        (b'{"access_token": "t", "expires_in": "300"}', 300.0),
        (b'{"access_token": "t"}', 0.0),
        (b'{"access_token": "t", "expires_in": -5}', 0.0),
        (b'{"access_token": "t", "expires_in": "soon"}', 0.0),
        (b'{"access_token": "t", "expires_in": 1e999}', 0.0),
    ],
)
def test_an_answer_has_a_token_and_perhaps_how_long_it_lasts(body, lifetime):
    token, seconds = oauth.parse_answer(URL, body)
    assert (token.reveal(), seconds) == ("t", lifetime)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"{}", b'{"access_token": ""}', b'{"access_token": 7}', b"[" * 100_000],
)
def test_an_answer_without_a_token_names_the_endpoint(body):
    with pytest.raises(SaslError, match=rf"^OAUTHBEARER: the answer of {URL} has no access_token$"):
        oauth.parse_answer(URL, body)
