"""Options of TLS and SASL: which go together, and that no secret is ever shown."""

import copy
import pickle
import ssl
import traceback

import pytest

from kafka_actors.config import ClientConfig, ConsumerConfig, JobConfig, build
from kafka_actors.config.security import Secret
from kafka_actors.errors import ConfigError

LOGIN = {"sasl_plain_username": "ann", "sasl_plain_password": "hush-hush"}
SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **LOGIN}
OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_oauthbearer_client_credentials_client_secret": "hush-hush",
}
_A = "sasl_oauthbearer_assertion_"
NAMED = {**OAUTH, "sasl_oauth_token_provider": "package.tokens:Tokens"}
IAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
KEY = {
    **OAUTH,
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    _A + "private_key_file": __file__,
    _A + "claim_iss": "me",
}


class Provider:
    def token(self):
        return "t"


def refusal(options, kind=ClientConfig):
    with pytest.raises(ConfigError) as caught:
        build(kind, options)
    assert "hush" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"security_protocol": None}, "security_protocol"),
        ({"ssl_cafile": __file__}, "ssl_cafile"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname"),
        ({"ssl_context": ssl.create_default_context()}, "ssl_context"),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "ssl_context"),
        ({"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile"),
        ({"security_protocol": "SSL", "ssl_crlfile": "/nowhere/crl.pem"}, "ssl_crlfile"),
        ({"security_protocol": "SSL", "ssl_keyfile": __file__}, "ssl_keyfile"),
        ({"security_protocol": "SSL", "ssl_password": "hush"}, "ssl_password"),
        ({"security_protocol": "SSL", **LOGIN}, "sasl_plain_username"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({**SASL, "sasl_mechanism": "DIGEST-MD5"}, "sasl_mechanism"),
        ({**SASL, "sasl_plain_username": None}, "sasl_plain_username"),
        ({**SASL, "sasl_plain_username": "a\0b"}, "sasl_plain_username"),
        ({**SASL, "sasl_plain_username": "a\udcff"}, "sasl_plain_username"),
        ({**SASL, "sasl_plain_password": "hush\udcff"}, "sasl_plain_password"),
        ({**SASL, "sasl_plain_password": ""}, "sasl_plain_password"),
        ({**SASL, "sasl_plain_password": b"hush"}, "sasl_plain_password"),
        ({**SASL, "sasl_oauth_token_provider": Provider()}, "sasl_oauth_token_provider"),
        (OAUTH, "sasl_oauthbearer_token_endpoint_url"),
        ({**OAUTH, **LOGIN, "sasl_oauth_token_provider": Provider()}, "sasl_plain_username"),
        ({**OAUTH, "sasl_oauth_token_provider": "hush"}, "sasl_oauth_token_provider"),
        (
            {**OAUTH, **ENDPOINT, "sasl_oauth_token_provider": Provider()},
            "sasl_oauthbearer_token_endpoint_url",
        ),
        (
            {**OAUTH, **ENDPOINT, "sasl_oauthbearer_token_endpoint_url": "http://idp"},
            "sasl_oauthbearer_token_endpoint_url",
        ),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://x"},
            "sasl_oauthbearer_client_credentials_client_id",
        ),
        ({**OAUTH, "sasl_oauth_token_provider": Provider(), "sasl_identity": {"a": 1}}, "sasl_identity"),
        ({**NAMED, "sasl_identity": {"client_secret": "hush"}}, "sasl_identity"),
        ({**NAMED, "sasl_identity": {"privateKey": "hush"}}, "sasl_identity"),
        ({**NAMED, "sasl_oauthbearer_scope": "x"}, "sasl_oauthbearer_scope"),
        ({**NAMED, "sasl_oauth_token_provider": "tokens:"}, "sasl_oauth_token_provider"),
        ({**OAUTH, **ENDPOINT, "sasl_identity": {"a": 1}}, "sasl_identity"),
        ({**SASL, "sasl_identity": {"a": 1}}, "sasl_identity"),
        ({**IAM, "sasl_identity": "hush"}, "sasl_identity"),
        ({**IAM, "sasl_identity": '{"profile_name": "hush\udcff"}'}, "sasl_identity"),
        ({**IAM, "sasl_oauth_token_provider": "a:b"}, "sasl_oauth_token_provider"),
        ({**KEY, _A + "private_key_file": "/nowhere/key"}, _A + "private_key_file"),
        ({**KEY, _A + "claim_iss": None}, _A + "claim_iss"),
        ({**KEY, _A + "algorithm": "HS256"}, _A + "algorithm"),
        ({**KEY, _A + "file": __file__}, _A + "private_key_file"),
        (
            {**KEY, "sasl_oauthbearer_client_credentials_client_secret": "hush"},
            "sasl_oauthbearer_client_credentials_client_secret",
        ),
        ({**OAUTH, **ENDPOINT, _A + "claim_iss": "me"}, _A + "claim_iss"),
        ({**KEY, _A + "template_file": "/nowhere"}, _A + "template_file"),
        ({"ssl.truststore.location": "hush"}, "ssl_truststore_location"),
        ({"sasl.jaas.config": "hush"}, "sasl_jaas_config"),
        ({"sasl.password": "hush"}, "sasl_password"),
    ],
)
def test_options_that_do_not_go_together_are_named(options, option):
    assert refusal(options).option == option


@pytest.mark.parametrize("kind", [ClientConfig, ConsumerConfig, JobConfig])
@pytest.mark.parametrize(
    "options",
    [
        SASL,
        {**OAUTH, **ENDPOINT},
        {"security_protocol": "SSL"},
        IAM,
        {**IAM, "sasl_identity": '{"role_arn": "arn"}'},
        {**NAMED, "sasl_identity": {"scope": "x", "client_secret": "${env:HUSH}", "n": 1}},
        {**KEY, _A + "private_key_passphrase": "hush-hush", _A + "claim_exp_seconds": "60"},
        {**OAUTH, "sasl_oauthbearer_token_endpoint_url": "https://idp", _A + "file": __file__},
    ],
)
def test_options_that_do(kind, options):
    config = build(kind, options)
    assert config.security_protocol == options["security_protocol"]
    again = build(kind, {name: getattr(config, name) for name in config.__struct_fields__})
    assert again == config


def test_dotted_names_and_small_letters():
    config = build(
        ClientConfig,
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "scram-sha-512",
            "sasl.plain.username": "ann",
            "sasl.plain.password": "hush",
            "ssl.check.hostname": "false",
        },
    )
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert config.sasl_plain_password is not None
    assert config.sasl_plain_password.reveal() == "hush"
    assert config.ssl_check_hostname is False


@pytest.mark.parametrize(
    "beside",
    [
        {"ssl_check_hostname": False},
        {"ssl_cafile": __file__},
        {"ssl_certfile": __file__},
        {"ssl_password": "hush-hush"},
        {"ssl_crlfile": __file__},
        {"ssl_ciphers": "AES"},
    ],
)
def test_an_option_that_a_context_takes_the_place_of_is_refused(beside):
    """A list of revoked certificates that is given and not loaded would let every one of them in."""
    error = refusal({"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), **beside})
    assert error.option == next(iter(beside))
    assert "has no effect beside ssl_context" in error.message


def test_a_ca_beside_a_context_is_for_the_endpoint_of_tokens():
    options = {**OAUTH, **ENDPOINT, "ssl_context": ssl.create_default_context(), "ssl_cafile": __file__}
    assert build(ClientConfig, options).ssl_cafile == __file__
    assert refusal({**options, "ssl_crlfile": __file__}).option == "ssl_crlfile"


def test_a_context_cannot_travel_with_a_job():
    options = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
    assert build(ConsumerConfig, options).ssl_context is options["ssl_context"]
    error = refusal(options, JobConfig)
    assert error.option == "ssl_context"
    assert "ssl_cafile" in error.message


def test_no_secret_is_shown_and_all_travel():
    config = build(JobConfig, {**SASL})
    error = ValueError(config, [config.sasl_plain_password])
    shown = [repr(config), str(config), f"{config}", f"{config.sasl_plain_password:}", "%s" % config]  # noqa: UP031
    shown += traceback.format_exception(error)
    assert "hush" not in "".join(shown)
    for again in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
        assert again == config
        assert again.sasl_plain_password.reveal() == "hush-hush"


def test_secrets_that_differ_are_different():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


def test_a_password_given_twice_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        build(ClientConfig, {**SASL}, sasl_plain_password="other-hush")
    assert caught.value.option == "sasl_plain_password"
    assert "hush" not in str(caught.value)
