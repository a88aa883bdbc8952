"""A refused login: when it stands, and when another try may send something else."""

import itertools

import pytest

from kafka_actors.config import ClientConfig, build, resolved
from kafka_actors.config.security import Secret
from kafka_actors.errors import (
    ConfigError,
    ConnectionFailedError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka_actors.net.security import credentials, oauth
from kafka_actors.net.security.credentials import ROTATION_S, SaslLogin

REFUSED = SaslAuthenticationFailedError("wrong")
_numbers = itertools.count()


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "password"
    made.write_text("hush")
    return made


def config_of(password, mechanism="PLAIN"):
    login = {"sasl_plain_username": "ann", "sasl_plain_password": password}
    return resolved(
        build(ClientConfig, {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, **login})
    )


def began(config, now=0.0):
    login = SaslLogin(config, lambda: now)
    return login, next(login.steps("broker"))


def outcome(config, now=0.0):
    """What becomes of a login that the broker refuses."""
    return began(config, now)[0].error_of(REFUSED)


def test_a_password_that_is_written_out_is_refused_for_good():
    config = config_of("hush")
    began(config)[0].accepted()
    assert outcome(config) is REFUSED


def test_a_reference_is_looked_up_for_each_login(file):
    config = config_of(f"${{file:{file}}}")
    assert began(config)[1] == b"\0ann\0hush"
    file.write_text("new")
    assert began(config)[1] == b"\0ann\0new"


def test_a_wrong_password_behind_a_reference_is_refused_at_once(file):
    assert outcome(config_of(f"${{file:{file}}}")) is REFUSED


def test_a_password_that_was_changed_meanwhile_is_tried(file):
    login, _ = began(config_of(f"${{file:{file}}}"))
    file.write_text("new")
    judged = login.error_of(REFUSED)
    assert isinstance(judged, ConnectionFailedError)
    assert judged.retriable
    assert "looked up again" in str(judged)


def test_a_login_that_was_accepted_may_be_refused_while_its_password_is_changed(file):
    config = config_of(f"${{file:{file}}}")
    began(config)[0].accepted()
    assert isinstance(outcome(config, 1000.0), ConnectionFailedError)
    assert isinstance(outcome(config, 999.0 + ROTATION_S), ConnectionFailedError)
    assert outcome(config, 1000.0 + ROTATION_S) is REFUSED
    began(config)[0].accepted()
    assert isinstance(outcome(config, 9000.0), ConnectionFailedError)
    other = UnsupportedSaslMechanismError("PLAIN")
    assert began(config)[0].error_of(other) is other, "no other password changes that"


def test_a_file_may_be_missing_for_a_moment_while_it_is_replaced(file):
    config = config_of(f"${{file:{file}}}")
    first, _ = began(config)
    file.unlink()
    for accepted in (False, True):
        if accepted:
            first.accepted()
        login = SaslLogin(config, lambda: 0.0)
        with pytest.raises(ConfigError) as caught:
            login.steps("broker")
        assert isinstance(login.error_of(caught.value), ConnectionFailedError) is accepted


def test_a_kept_token_that_is_refused_is_asked_for_anew(monkeypatch):
    tokens = iter("abc")
    monkeypatch.setattr(oauth, "_fetch", lambda *_: (Secret(next(tokens)), 1e9))
    config = build(
        ClientConfig,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://localhost:1/",
            "sasl_oauthbearer_client_credentials_client_id": f"me-{next(_numbers)}",
            "sasl_oauthbearer_client_credentials_client_secret": "hush",
        },
    )

    def log_in():
        login = SaslLogin(config)
        return login, next(login.steps("broker"))

    assert b"Bearer a" in log_in()[1]
    login, sent = log_in()
    assert b"Bearer a" in sent
    assert isinstance(login.error_of(REFUSED), ConnectionFailedError)
    login, sent = log_in()
    assert b"Bearer b" in sent
    assert login.error_of(REFUSED) is REFUSED, "it was asked for just now"
    assert b"Bearer c" in log_in()[1]


@pytest.fixture(autouse=True)
def forgotten():
    """Each test begins as a process does."""
    credentials._accepted.clear()
