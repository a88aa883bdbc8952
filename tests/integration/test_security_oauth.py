"""Client credentials over HTTPS, against a token endpoint in this process."""

import base64
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import trustme
from fakes.token_endpoint import TokenEndpoint
from waiting import slow_s, until, within

from kafka_actors.config import ClientConfig, build
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.net.security import oauth
from kafka_actors.net.security.oauth import client_credentials, forget

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A token is requested for longer than anybody stands still: when the time is over, no other try is made."""
    monkeypatch.setattr(oauth, "_TIMEOUT_S", slow_s(10))


@pytest.fixture
def endpoint(tmp_path):
    with TokenEndpoint(tmp_path) as made:
        yield made


@pytest.fixture
def config(endpoint):
    return config_of(endpoint)


def config_of(endpoint, **other):
    options = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": endpoint.ca,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": f"me:{next(_numbers)}",
        "sasl_oauthbearer_client_credentials_client_secret": "hush&hush",
    }
    return build(ClientConfig, {**options, **other})


def get(config, now=0.0):
    pauses = []
    return client_credentials(config, lambda: now, pauses.append).reveal(), pauses


def refused(config, match, kind=SaslError, now=0.0):
    with pytest.raises(kind, match=match) as caught:
        get(config, now)
    assert "hush" not in str(caught.value)


def test_what_is_asked(endpoint):
    config = config_of(endpoint, sasl_oauthbearer_scope="kafka read")
    assert get(config) == ("tok", [])
    ((path, authorization, form),) = endpoint.asked
    assert path == "/token"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    kind, pair = authorization.split()
    number = config.sasl_oauthbearer_client_credentials_client_id.split(":")[1]
    assert (kind, base64.b64decode(pair)) == ("Basic", f"me%3A{number}:hush%26hush".encode())


def numbered(endpoint, count, lifetime=100):
    """Answers with the tokens t1, t2, …"""
    endpoint.answers = [
        (200, {}, json.dumps({"access_token": f"t{n + 1}", "expires_in": lifetime})) for n in range(count)
    ]


def test_a_token_is_shared_for_most_of_its_life(endpoint, config):
    numbered(endpoint, 2)
    for now in (0.0, 50.0, 79.0):
        assert get(config, now)[0] == "t1"
    assert len(endpoint.asked) == 1
    assert get(config, 80.0)[0] == "t1", "the old one is good still, while it is renewed"
    until(lambda: get(config, 80.0)[0] == "t2")
    assert len(endpoint.asked) == 2


def test_the_old_token_is_used_until_it_ends(endpoint, config):
    numbered(endpoint, 1)
    get(config)
    endpoint.answers = [(503, {}, "")]
    assert get(config, 81.0)[0] == "t1"
    until(lambda: len(endpoint.asked) == 5)
    assert get(config, 99.0)[0] == "t1"
    refused(config, "answered 503", ConnectionFailedError, now=100.0)
    numbered(endpoint, 1)
    assert get(config, 101.0)[0] == "t1"


def test_nobody_with_a_good_token_waits_for_the_endpoint(endpoint, config):
    numbered(endpoint, 1)
    get(config)
    released = threading.Event()

    def held(_):
        released.wait(slow_s(60))
        return 503, {}, ""

    endpoint.answers = [held]
    try:
        with within(30):  # an answer is waited for three times as long
            assert [get(config, 90.0)[0] for _ in range(20)] == ["t1"] * 20
        until(lambda: len(endpoint.asked) == 2, what="the request that nobody waits for")
    finally:
        released.set()


def test_whoever_needs_the_same_token_shares_one_request(endpoint, config):
    numbered(endpoint, 1, lifetime=0)
    endpoint.pause = 0.01
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: get(config)[0], range(8)))
    assert found == ["t1"] * 8
    assert len(endpoint.asked) < 8


def test_a_token_that_a_broker_refused_is_used_no_more(endpoint, config):
    numbered(endpoint, 2)
    assert forget(config, Secret("t1"), 1.0) is False, "there is none"
    get(config, 1.0)
    assert forget(config, Secret("another"), 2.0) is True, "another connection has replaced it already"
    assert forget(config, Secret("t1"), 2.0) is True
    assert get(config, 3.0)[0] == "t2"
    assert forget(config, Secret("t2"), 3.0) is False, "it was asked for only now"


def test_a_token_without_a_lifetime_is_used_once(endpoint, config):
    endpoint.answers = [(200, {}, '{"access_token": "tok"}')]
    get(config)
    get(config)
    assert len(endpoint.asked) == 2


def test_an_endpoint_that_fails_for_a_moment_is_asked_again(endpoint, config):
    good = endpoint.answers[0]
    endpoint.answers = [(503, {}, ""), (429, {}, ""), good]
    token, pauses = get(config)
    assert token == "tok"
    assert pauses == sorted(pauses)
    assert len(pauses) == 2


def test_an_endpoint_that_keeps_failing_is_a_typed_error(endpoint, config):
    endpoint.answers = [(503, {}, "")]
    refused(config, r"https://127.*/token answered 503", ConnectionFailedError)
    assert len(endpoint.asked) == 4


@pytest.mark.parametrize("said", ["no HTTP at all", "HTTP/1.1 200 OK\r\nX: " + "x" * 100_000, ""])
def test_an_endpoint_that_speaks_no_http(endpoint, config, said):
    endpoint.answers = [(0, {}, said)]
    refused(config, "no token from https://127", ConnectionFailedError)
    assert len(endpoint.asked) == 4


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for(endpoint, config, monkeypatch):
    limit_s, patience_s = 0.3, oauth._TIMEOUT_S
    endpoint.pause = limit_s / 6

    def answer(_):
        monkeypatch.setattr(
            oauth, "_TIMEOUT_S", limit_s
        )  # from here on: connecting and the handshake may take longer
        return 200, {}, '{"access_token": "tok"}' + " " * 20

    def between_tries(_):
        monkeypatch.setattr(oauth, "_TIMEOUT_S", patience_s)

    endpoint.answers = [answer]
    with pytest.raises(
        ConnectionFailedError, match=f"its answer was not whole after {limit_s:g} s"
    ) as caught:
        client_credentials(config, lambda: 0.0, between_tries)
    assert "hush" not in str(caught.value)


def test_what_an_endpoint_says_of_an_error_is_one_line(endpoint, config):
    endpoint.answers = [(400, {}, json.dumps({"error": "bad\nrequest", "error_description": "x" * 10_000}))]
    with pytest.raises(SaslError) as caught:
        get(config)
    assert "answered 400: bad request: xxx" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_wrong_credentials_are_not_tried_again(endpoint, config):
    endpoint.answers = [(401, {}, '{"error": "invalid_client", "error_description": "unknown", "x": "hush"}')]
    refused(config, "answered 401: invalid_client: unknown")
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"access_token": 7}', '{"access_token": "", "expires_in": 1}']
)
def test_an_answer_without_a_token(endpoint, config, body):
    endpoint.answers = [(200, {}, body)]
    refused(config, "has no access_token")


def test_a_secret_does_not_follow_a_redirection(endpoint, config):
    endpoint.answers = [(307, {"Location": endpoint.url + "/elsewhere"}, "")]
    refused(config, "answered 307")
    assert len(endpoint.asked) == 1


def test_an_endpoint_whose_certificate_is_not_trusted(endpoint, tmp_path):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    refused(config_of(endpoint, ssl_cafile=str(other)), "certificate verify failed|CERTIFICATE_VERIFY_FAILED")
    assert endpoint.asked == []
