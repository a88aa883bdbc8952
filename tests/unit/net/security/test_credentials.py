"""A refused login: when it stands, and when another try may send something else."""

import base64
import itertools
import json
import pickle
import sys

import pytest

from kafka_actors.config import ClientConfig, JobConfig, build, resolved
from kafka_actors.config.security import Secret
from kafka_actors.errors import (
    ConfigError,
    ConnectionFailedError,
    SaslAuthenticationFailedError,
    SaslError,
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


def client_credentials():
    """A config whose tokens are cached under a client id of its own."""
    return build(
        ClientConfig,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://localhost:1/",
            "sasl_oauthbearer_client_credentials_client_id": f"me-{next(_numbers)}",
            "sasl_oauthbearer_client_credentials_client_secret": "hush",
        },
    )


def test_a_kept_token_that_is_refused_is_asked_for_anew(monkeypatch):
    tokens = iter("abc")
    monkeypatch.setattr(oauth, "_fetch", lambda *_: (Secret(next(tokens)), 1e9))
    config = client_credentials()

    def log_in():
        login = SaslLogin(config)
        return login, next(login.steps("broker"))

    assert b"Bearer a" in log_in()[1]
    login, sent = log_in()
    assert b"Bearer a" in sent
    assert isinstance(login.error_of(REFUSED), ConnectionFailedError)
    login, sent = log_in()
    assert b"Bearer b" in sent
    refusal = login.error_of(REFUSED)
    assert isinstance(refusal, SaslAuthenticationFailedError), "it was asked for just now"
    assert "the token is no JWT" in str(refusal)
    assert b"Bearer c" in log_in()[1]


def test_each_connection_that_sent_a_refused_token_tries_the_one_that_replaced_it(monkeypatch):
    tokens = iter("ab")
    monkeypatch.setattr(oauth, "_fetch", lambda *_: (Secret(next(tokens)), 1e9))
    config = client_credentials()
    next(SaslLogin(config).steps("broker"))
    first, second = SaslLogin(config), SaslLogin(config)
    for login in (first, second):
        assert b"Bearer a" in next(login.steps("broker"))
    assert isinstance(first.error_of(REFUSED), ConnectionFailedError)
    assert b"Bearer b" in next(SaslLogin(config).steps("broker"))
    assert isinstance(second.error_of(REFUSED), ConnectionFailedError)
    assert b"Bearer b" in next(SaslLogin(config).steps("broker"))


@pytest.fixture(autouse=True)
def forgotten():
    """Each test begins as a process does."""
    credentials._accepted.clear()


# ---------------------------------------------------------------- providers by name


def jwt(**claims):
    parts = {"alg": "RS256"}, claims
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, "c2lnbmF0dXJl"))


class Named:
    """A provider as users write them: named, it is made with the arguments of `sasl_identity`."""

    made = 0

    def __init__(self, audience="kafka"):
        type(self).made += 1
        self.audience = audience

    def token(self):
        return jwt(sub="ann", iss="https://idp", aud=self.audience, exp=7)


@pytest.fixture
def named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokens_by_name", sys.modules[__name__])
    Named.made = 0
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": "tokens_by_name:Named",
        "sasl_identity": {"audience": f"orders-{next(_numbers)}"},
    }


def test_a_provider_by_name_travels_as_its_name_and_is_made_once_where_it_is_used(named):
    sent = pickle.dumps(build(JobConfig, named))
    assert Named.made == 0
    config = pickle.loads(sent)
    first = next(SaslLogin(config).steps("broker"))
    assert first == next(SaslLogin(config).steps("another"))
    assert Named.made == 1
    claims = json.loads(base64.urlsafe_b64decode(first.split(b".")[1] + b"=="))
    assert claims["aud"] == named["sasl_identity"]["audience"]


def test_a_refused_token_says_whose_it_is_and_not_what_it_is(named):
    login = SaslLogin(build(ClientConfig, named))
    next(login.steps("broker"))
    said = login.error_of(SaslAuthenticationFailedError("kafka:9093: no", request="SaslAuthenticate"))
    audience = named["sasl_identity"]["audience"]
    assert str(said) == (
        "SASL_AUTHENTICATION_FAILED (58) in answer to SaslAuthenticate: kafka:9093: no; the token has sub 'ann', "
        f"iss 'https://idp', aud '{audience}', exp '7': the broker has to accept that issuer and audience, and its time"
    )


class OwnIdentity:
    """A provider whose `identity` is of the user's own making."""

    def __init__(self, identity):
        self.identity = identity

    def token(self):
        return "opaque"


def failing():
    raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        (lambda: "signed as ann", "signed as ann"),
        ("ann@example", "the token is no JWT"),
        (failing, "the token is no JWT"),
    ],
)
def test_a_refusal_is_the_brokers_whatever_a_providers_identity_is(identity, told):
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    login = SaslLogin(build(ClientConfig, {**options, "sasl_oauth_token_provider": OwnIdentity(identity)}))
    next(login.steps("broker"))
    said = login.error_of(REFUSED)
    assert isinstance(said, SaslAuthenticationFailedError)
    assert told in str(said)


def test_a_provider_that_cannot_be_made_is_an_error_of_sasl(named):
    config = build(ClientConfig, {**named, "sasl_oauth_token_provider": "tokens_by_name:Nobody"})
    with pytest.raises(SaslError, match="tokens_by_name:Nobody can't be made with audience"):
        SaslLogin(config).steps("broker")


def test_aws_msk_iam_signs_for_the_broker_and_a_refusal_names_the_identity(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    config = build(
        ClientConfig,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_identity": {"region": "eu-west-1"},
        },
    )
    login = SaslLogin(config)
    payload = json.loads(next(login.steps("b-1.orders.example.org")))
    assert payload["host"] == "b-1.orders.example.org"
    assert "/eu-west-1/kafka-cluster/" in payload["x-amz-credential"]
    said = str(login.error_of(SaslAuthenticationFailedError("b-1:9098: [1]: Access denied")))
    assert (
        "Access denied; signed as AWS's default identity, access key AKIDEXAMPLE: its policy has to" in said
    )
    assert "hush" not in said
    assert payload["x-amz-signature"] not in said


def test_aws_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    options = {
        "sasl_mechanism": "AWS_MSK_IAM",
        "sasl_identity": {"profile_name": "a package that is missing"},
    }
    login = SaslLogin(build(ClientConfig, {"security_protocol": "SASL_SSL", **options}))
    with pytest.raises(SaslError, match=r'pip install "kafka-actors\[aws\]"'):
        login.steps("b-1.kafka.eu-west-1.amazonaws.com")
