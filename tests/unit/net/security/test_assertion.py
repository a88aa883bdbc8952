"""The JWT by which a client proves who it is: RFC 7523, with the claims of Kafka's options."""

import base64
import json
import sys

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import SaslError
from kafka_actors.net.security.assertion import assertion_of

PREFIX = "sasl_oauthbearer_assertion_"
NOW = 1_800_000_000.9


@pytest.fixture(scope="module")
def keys():
    return {"RS256": rsa.generate_private_key(65537, 2048), "ES256": ec.generate_private_key(ec.SECP256R1())}


def written(key, path, password=None):
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    return str(path)


def config_of(**options):
    named = {PREFIX + name: value for name, value in options.items()}
    return build(
        ClientConfig,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
            **named,
        },
    )


CLAIMS = {"claim_iss": "me", "claim_sub": "me", "claim_aud": "https://idp/token"}


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_others_verify_the_signature_and_read_the_claims(keys, tmp_path, algorithm):
    path = written(keys[algorithm], tmp_path / "key.pem")
    config = config_of(private_key_file=path, algorithm=algorithm, **CLAIMS)
    token = assertion_of(config, NOW).reveal()
    public = keys[algorithm].public_key()
    claims = jwt.decode(
        token,
        public,
        [algorithm],
        audience="https://idp/token",
        options={"verify_nbf": False, "verify_iat": False, "verify_exp": False},
    )
    assert claims == {
        "iss": "me",
        "sub": "me",
        "aud": "https://idp/token",
        "iat": 1_800_000_000,
        "exp": 1_800_000_300,
        "nbf": 1_799_999_940,
    }
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT"}


def test_a_template_adds_claims_and_the_id_of_the_key(keys, tmp_path):
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps({"header": {"kid": "k1", "alg": "none"}, "payload": {"iss": "it", "x": [1]}})
    )
    config = config_of(
        private_key_file=written(keys["RS256"], tmp_path / "key.pem"),
        template_file=str(template),
        claim_jti_include=True,
        **CLAIMS,
    )
    tokens = [assertion_of(config).reveal() for _ in range(2)]
    assert jwt.get_unverified_header(tokens[0]) == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    found = [
        jwt.decode(token, keys["RS256"].public_key(), ["RS256"], audience="https://idp/token")
        for token in tokens
    ]
    assert (found[0]["iss"], found[0]["x"]) == ("it", [1])
    assert found[0]["jti"] != found[1]["jti"]


def test_a_key_with_a_passphrase_and_one_without_pems_lines(keys, tmp_path):
    path = written(keys["RS256"], tmp_path / "locked.pem", b"hush-hush")
    assert assertion_of(config_of(private_key_file=path, private_key_passphrase="hush-hush", **CLAIMS))
    der = keys["RS256"].private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "key").write_bytes(base64.b64encode(der))
    assert assertion_of(config_of(private_key_file=str(tmp_path / "key"), **CLAIMS))
    for passphrase, hint in ((None, "private_key_passphrase"), ("hush", "a wrong passphrase")):
        with pytest.raises(SaslError, match=hint) as caught:
            assertion_of(config_of(private_key_file=path, private_key_passphrase=passphrase, **CLAIMS))
        assert "hush" not in str(caught.value)


def test_a_key_of_another_kind_than_the_algorithm(keys, tmp_path):
    path = written(keys["ES256"], tmp_path / "key.pem")
    with pytest.raises(SaslError, match="can't sign by RS256"):
        assertion_of(config_of(private_key_file=path, **CLAIMS))


def test_a_file_is_read_anew_for_each_request(tmp_path):
    file = tmp_path / "assertion"
    file.write_text("a.b.c\n")
    config = config_of(file=str(file))
    assert assertion_of(config).reveal() == "a.b.c"
    file.write_text("d.e.f")
    assert assertion_of(config).reveal() == "d.e.f"
    assert "d.e.f" not in repr(assertion_of(config))
    file.write_text("hush")
    with pytest.raises(SaslError, match="assertion_file holds no JWT") as caught:
        assertion_of(config)
    assert "hush" not in str(caught.value)
    file.unlink()
    with pytest.raises(SaslError, match="No such file"):
        assertion_of(config)


def test_a_template_that_is_none(keys, tmp_path):
    template = tmp_path / "template.json"
    template.write_text("[]")
    path = written(keys["RS256"], tmp_path / "key.pem")
    with pytest.raises(SaslError, match='accepts JSON with "header" and "payload"'):
        assertion_of(config_of(private_key_file=path, template_file=str(template)))


def test_without_cryptography_the_error_says_what_to_install(keys, tmp_path, monkeypatch):
    config = config_of(private_key_file=written(keys["RS256"], tmp_path / "key.pem"), **CLAIMS)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(SaslError, match=r'pip install "kafka-actors\[oauth\]"'):
        assertion_of(config)


def test_a_secret_needs_no_assertion():
    config = build(
        ClientConfig,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://idp",
            "sasl_oauthbearer_client_credentials_client_id": "me",
            "sasl_oauthbearer_client_credentials_client_secret": "hush",
        },
    )
    assert assertion_of(config) is None
