"""OAUTHBEARER with tokens that a real broker validates: signature, issuer, audience and time."""

import json

import jwt
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fakes.signed_tokens import kafka_with_validated_tokens, new_key
from fakes.signing_provider import signed
from fakes.token_endpoint import TokenEndpoint
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import SaslAuthenticationFailedError, SaslError

PROVIDER = "tests.fakes.signing_provider:SignedTokens"  # the actors of a local Ray have the working directory on their path


pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def validating(tmp_path_factory):
    with kafka_with_validated_tokens(tmp_path_factory.mktemp("tokens")) as made:
        yield made


@pytest.fixture(scope="module")
def kafka(validating):
    return validating[0]


@pytest.fixture
def options(validating):
    kafka, ca, _ = validating
    return {
        "bootstrap_servers": kafka.bootstrap("TOKENS"),
        "config": {"security_protocol": "SASL_SSL", "ssl_cafile": ca, "sasl_mechanism": "OAUTHBEARER"},
    }


def brokers(options, **more):
    with ka.Admin(
        bootstrap_servers=options["bootstrap_servers"], config={**options["config"], **more}
    ) as admin:
        return admin.describe_cluster().nodes


class OneToken:
    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token


def test_a_token_that_the_issuer_signed_is_accepted(validating, options):
    assert len(brokers(options, sasl_oauth_token_provider=OneToken(signed(validating[2], sub="ann")))) == 1


@pytest.mark.parametrize(
    ("claims", "shown"),
    [
        ({"aud": "other"}, "aud 'other'"),
        ({"iss": "https://elsewhere"}, "iss 'https://elsewhere'"),
        ({"seconds": -3600}, "exp '"),
    ],
)
def test_a_token_that_the_broker_refuses_is_one_line_that_says_whose_it_is(
    validating, options, kafka, claims, shown
):
    token = signed(validating[2], **{"sub": "ann", **claims})
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        brokers(options, sasl_oauth_token_provider=OneToken(token))
    said = str(caught.value)
    assert kafka.bootstrap("TOKENS") in said
    assert "sub 'ann'" in said
    assert shown in said
    assert "the broker has to accept that issuer and audience" in said
    assert token not in said
    assert "\n" not in said


def test_a_token_that_another_key_signed(options, tmp_path):
    token = signed(new_key(tmp_path / "other.pem"), sub="ann")
    with pytest.raises(SaslAuthenticationFailedError, match="sub 'ann'"):
        brokers(options, sasl_oauth_token_provider=OneToken(token))


def test_a_provider_that_is_named_signs_in(validating, options, tmp_path):
    key_file = tmp_path / "key.pem"
    key_file.write_text(_pem(validating[2]))
    identity = {"key_file": str(key_file), "subject": "by-name"}
    assert brokers(options, sasl_oauth_token_provider=PROVIDER, sasl_identity=identity)


def _pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


# ---------------------------------------------------------------- a private key in place of a secret (KIP-1258)


@pytest.fixture
def idp(validating, tmp_path):
    """A token endpoint that verifies the client's assertion and signs tokens that the broker accepts."""
    clients = new_key(tmp_path / "client.pem")

    def answer(form):
        try:
            assert form["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]
            claims = jwt.decode(
                form["client_assertion"][0],
                clients.public_key(),
                ["RS256"],
                audience=made.url,
                issuer="orders",
                options={"require": ["exp", "iat", "sub", "jti"]},
            )
        except jwt.InvalidTokenError as error:
            return 401, {}, json.dumps({"error": "invalid_client", "error_description": str(error)})
        token = signed(validating[2], 60.0, sub=claims["sub"], scope=form.get("scope", [""])[0])
        return 200, {}, json.dumps({"access_token": token, "expires_in": 60})

    with TokenEndpoint(tmp_path) as made:
        made.answers = [answer]
        made.key_file = str(tmp_path / "client.pem")
        yield made


def with_key(options, idp, tmp_path, **more):
    both = tmp_path / "both.pem"
    with open(options["config"]["ssl_cafile"]) as brokers_ca, open(idp.ca) as endpoints_ca:
        both.write_text(brokers_ca.read() + endpoints_ca.read())
    prefix = "sasl_oauthbearer_assertion_"
    return {
        "ssl_cafile": str(both),
        "sasl_oauthbearer_token_endpoint_url": idp.url,
        "sasl_oauthbearer_scope": "kafka",
        prefix + "private_key_file": idp.key_file,
        prefix + "claim_iss": "orders",
        prefix + "claim_sub": "orders",
        prefix + "claim_aud": idp.url,
        prefix + "claim_jti_include": True,
        **more,
    }


def test_a_private_key_gets_a_token_that_the_broker_accepts(options, idp, tmp_path):
    assert brokers(options, **with_key(options, idp, tmp_path))
    ((_, authorization, form),) = idp.asked
    assert authorization is None
    assert form["grant_type"] == ["client_credentials"]
    assert form["scope"] == ["kafka"]
    assert "client_id" not in form


def test_a_key_that_the_endpoint_does_not_know_names_client_broker_and_endpoint(
    options, idp, kafka, tmp_path
):
    new_key(tmp_path / "another.pem")
    wrong = with_key(
        options, idp, tmp_path, sasl_oauthbearer_assertion_private_key_file=str(tmp_path / "another.pem")
    )
    with pytest.raises(SaslError) as caught:
        brokers(options, **wrong)
    said = str(caught.value)
    assert f"{kafka.bootstrap('TOKENS')}: OAUTHBEARER: {idp.url} answered 401: invalid_client" in said
    assert said.endswith("(assertion of orders)")
    assert len(idp.asked) == 1


@pytest.mark.slow
def test_kafka_3_9_validates_as_well(tmp_path):
    with kafka_with_validated_tokens(tmp_path, "3.9.2") as (kafka, ca, key):
        config = {"security_protocol": "SASL_SSL", "ssl_cafile": ca, "sasl_mechanism": "OAUTHBEARER"}
        old = {"bootstrap_servers": kafka.bootstrap("TOKENS"), "config": config}
        assert brokers(old, sasl_oauth_token_provider=OneToken(signed(key, sub="ann")))
        with pytest.raises(SaslAuthenticationFailedError, match="aud 'other'"):
            brokers(old, sasl_oauth_token_provider=OneToken(signed(key, sub="ann", aud="other")))


# ---------------------------------------------------------------- in the processes of a job


@pytest.mark.ray
def test_a_job_on_ray_makes_the_named_provider_in_its_actors(
    validating, options, ray_local, group_id, tmp_path
):
    kafka, _, key = validating
    kafka.create_topic(group_id, partitions=2)
    (tmp_path / "key.pem").write_text(_pem(key))
    out = tmp_path / "rows"

    def process(batch: pa.RecordBatch) -> None:
        with open(out, "ab") as file:
            file.write(b"".join(value + b"\n" for value in batch["value"].to_pylist()))

    security = {
        **options["config"],
        "sasl_oauth_token_provider": PROVIDER,
        "sasl_identity": {"key_file": str(tmp_path / "key.pem"), "subject": "job"},
    }
    with ka.Producer(bootstrap_servers=options["bootstrap_servers"], config=security) as producer:
        for n in range(10):
            producer.send(group_id, b"%d" % n, partition=n % 2)
    job = ka.Job(
        topics=[group_id],
        group_id=group_id,
        bootstrap_servers=options["bootstrap_servers"],
        process=process,
        workers=1,
        config={**security, "auto_offset_reset": "earliest", "start_timeout_s": 600},
    )
    with job.changed(until="latest").start() as running:
        running.wait(timeout=slow_s(60))
    assert set(out.read_bytes().split()) == {b"%d" % n for n in range(10)}
