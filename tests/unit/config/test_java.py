"""Java's names of TLS and SASL, its stores (PEM and PKCS12 are read, JKS is refused with what converts it), and `sasl.jaas.config` as
it stands in people's jobs.
"""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from fakes.secure import KEY_PASSWORD, Files, make_files

from kafka_actors.config import ClientConfig, build
from kafka_actors.config.java import from_java, login_of
from kafka_actors.errors import ConfigError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Path:
    """`trust.p12` and `keys.p12`, both with the password `changeit`."""
    directory = tmp_path_factory.mktemp("stores")
    ca = load_pem_x509_certificate(Path(files.ca).read_bytes())
    certificate = load_pem_x509_certificate(Path(files.certificate).read_bytes())
    key = load_pem_private_key(Path(files.key).read_bytes(), KEY_PASSWORD.encode())
    how = BestAvailableEncryption(b"changeit")
    (directory / "trust.p12").write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [ca], how))
    (directory / "keys.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", key, certificate, [ca], how)  # type: ignore[arg-type]
    )
    return directory


def test_pem_files_are_named_as_ours(files: Files) -> None:
    found = from_java(
        {
            "ssl_truststore_location": files.ca,
            "ssl_truststore_password": "ignored",
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": files.certificate,
            "ssl_key_password": "p",
            "ssl_enabled_protocols": "TLSv1.2,TLSv1.3",
            "ssl_protocol": "TLSv1.3",
            "ssl_endpoint_identification_algorithm": "",
        }
    )
    assert found.options == {
        "ssl_cafile": files.ca,
        "ssl_certfile": files.certificate,
        "ssl_password": "p",
        "ssl_check_hostname": "false",
    }
    assert found.origins["ssl_cafile"] == "ssl_truststore_location"


def test_pkcs12_stores_become_a_context(stores: Path, files: Files) -> None:
    found = from_java(
        {
            "security_protocol": "SSL",
            "ssl_truststore_location": str(stores / "trust.p12"),
            "ssl_truststore_password": "changeit",
            "ssl_truststore_type": "JKS",  # Java reads PKCS12 under this name, too
            "ssl_keystore_location": str(stores / "keys.p12"),
            "ssl_keystore_password": "changeit",
            "ssl_key_password": "changeit",
        }
    )
    assert set(found.options) == {"security_protocol", "ssl_context"}
    context = build(ClientConfig, found.options).ssl_context
    assert [dict(part[0] for part in ca["subject"]) for ca in context.get_ca_certs()]
    assert context.check_hostname
    assert sorted(path.name for path in stores.iterdir()) == ["keys.p12", "trust.p12"]


def test_an_option_that_a_pkcs12_store_takes_the_place_of_is_refused(stores: Path, files: Files) -> None:
    store = {
        "ssl_truststore_location": str(stores / "trust.p12"),
        "ssl_truststore_password": "changeit",
    }
    with pytest.raises(ConfigError) as caught:
        from_java({**store, "ssl_ciphers": "AES"})
    assert caught.value.option == "ssl_ciphers"
    assert "has no effect beside the PKCS12 store of ssl_truststore_location" in str(caught.value)
    assert not from_java({**store, "ssl_check_hostname": "false"}).options["ssl_context"].check_hostname
    tokens = {"sasl_oauthbearer_token_endpoint_url": "https://idp/token", "ssl_cafile": files.ca}
    assert from_java({**store, **tokens}).options["ssl_cafile"] == files.ca


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (
            b"\xfe\xed\xfe\xed",
            "a JKS store, which only Java reads; convert it: keytool -importkeystore -srckeystore {path} "
            "-srcstoretype JKS -destkeystore {target} -deststoretype PKCS12",
        ),
        (b"\xce\xce\xce\xce", "a JCEKS store"),
        (b"hello", "neither PEM nor PKCS12"),
    ],
)
def test_another_store_is_refused(head: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(head + b"\0" * 20)
    with pytest.raises(ConfigError) as caught:
        from_java({"ssl_truststore_location": str(path)})
    assert caught.value.option == "ssl_truststore_location"
    assert says.format(path=path, target=path.with_suffix(".p12")) in str(caught.value)


@pytest.mark.parametrize("password", ["wrong-hush", None])
def test_a_wrong_password_of_a_store_is_said_and_not_shown(password: str | None, stores: Path) -> None:
    properties = {"ssl_keystore_location": str(stores / "keys.p12")}
    if password is not None:
        properties["ssl_keystore_password"] = password
    with pytest.raises(
        ConfigError, match=r"^ssl_keystore_location: .* or its password is another one"
    ) as caught:
        from_java(properties)
    assert "hush" not in str(caught.value)


def test_a_store_that_lacks_what_is_wanted_of_it(stores: Path) -> None:
    with pytest.raises(ConfigError, match="there is no key with a certificate in it"):
        from_java({"ssl_keystore_location": str(stores / "trust.p12"), "ssl_keystore_password": "changeit"})


@pytest.mark.parametrize(
    ("properties", "option", "says"),
    [
        ({"ssl_enabled_protocols": "TLSv1.3"}, "ssl_enabled_protocols", "can't be narrowed"),
        (
            {"sasl_login_callback_handler_class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
            "sasl_login_callback_handler_class",
            "there is no JVM to run it in",
        ),
        (
            {
                "sasl_jaas_config": 'a.PlainLoginModule required username="u" password="p";',
                "sasl_plain_username": "x",
            },
            "sasl_jaas_config",
            "is given beside sasl_plain_username",
        ),
        (
            {"sasl_oauthbearer_jwt_retriever_class": "org.apache.kafka.x.JwtBearerJwtRetriever"},
            "sasl_oauthbearer_jwt_retriever_class",
            "there is no JVM to run it in",
        ),
        ({"sasl_login_class": "a.Login"}, "sasl_login_class", "there is no JVM to run it in"),
        ({"partitioner_ignore_keys": "true"}, "partitioner_ignore_keys", "accepts false"),
        ({"ssl_endpoint_identification_algorithm": "md5"}, "ssl_endpoint_identification_algorithm", "https"),
    ],
)
def test_what_cannot_be_is_named(properties: dict[str, str], option: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_java(properties)
    assert caught.value.option == option
    assert says in caught.value.message


def test_javas_own_handler_asks_for_what_is_done_anyway() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    properties = {"sasl_login_callback_handler_class": f"{package}.secured.OAuthBearerLoginCallbackHandler"}
    properties["sasl_oauthbearer_jwt_retriever_class"] = f"{package}.DefaultJwtRetriever"
    properties["sasl_oauthbearer_jwt_validator_class"] = f"{package}.DefaultJwtValidator"
    properties["partitioner_ignore_keys"] = "false"
    assert from_java(properties).options == {}


def test_the_files_of_clouds_for_javas_clients() -> None:
    """Files for Java clients, as Amazon's and Google's documents have them, become options here."""
    iam = from_java(
        {
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_jaas_config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="orders";',
            "sasl_client_callback_handler_class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        }
    )
    assert iam.options == {"sasl_mechanism": "AWS_MSK_IAM", "sasl_identity": {"profile_name": "orders"}}
    assert iam.origins == {"sasl_identity": "sasl_jaas_config"}
    jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    for handler, provider in (
        ("software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler", "AwsMsk"),
        ("com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler", "Google"),
    ):
        found = from_java({"sasl_jaas_config": jaas, "sasl_login_callback_handler_class": handler})
        assert found.options == {"sasl_oauth_token_provider": f"kafka_actors.identity:{provider}"}


def test_a_client_that_signs_an_assertion_for_javas_clients() -> None:
    properties = {
        "sasl_jaas_config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;",
        "sasl_oauthbearer_assertion_private_key_file": "/key",
        "sasl_oauthbearer_assertion_claim_iss": "me",
    }
    assert from_java(properties).options == {name: properties[name] for name in list(properties)[1:]}


KAFKA = "org.apache.kafka.common.security"


@pytest.mark.parametrize("package", [f"{KAFKA}.plain.", f"kafkashaded.{KAFKA}.plain.", "a.", ""])
def test_user_and_password_whatever_the_package(package: str) -> None:
    text = f'{package}PlainLoginModule required username="u" password="p";'
    assert login_of("o", text) == {"sasl_plain_username": "u", "sasl_plain_password": "p"}


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ('"a;b=c d"', "a;b=c d"),
        ("'it\"s'", 'it"s'),
        (r'"quo\"te \\ back"', 'quo"te \\ back'),
        ("plain", "plain"),
        ('""', ""),
        ('"päss wörd"', "päss wörd"),
    ],
)
def test_a_password_as_it_is_quoted(written: str, password: str) -> None:
    text = f"  a.ScramLoginModule\trequired\n username=u\n password = {written}\n;  "
    assert login_of("o", text)["sasl_plain_password"] == password


def test_a_clients_credentials() -> None:
    text = f'{KAFKA}.oauthbearer.OAuthBearerLoginModule required clientId="id" clientSecret="s" scope="a b";'
    assert login_of("o", text) == {
        "sasl_oauthbearer_client_credentials_client_id": "id",
        "sasl_oauthbearer_client_credentials_client_secret": "s",
        "sasl_oauthbearer_scope": "a b",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no module"),
        ("hush", "names no module"),
        (
            'a.Krb5LoginModule required password="hush";',
            "names Krb5LoginModule: the login of a PlainLoginModule",
        ),
        ('a.PlainLoginModule perhaps username="u" password="hush";', "names PlainLoginModule"),
        ('a.PlainLoginModule required password="hush";', "lacks username for PlainLoginModule"),
        (
            'a.PlainLoginModule required username="u" password="hush" extra="x";',
            "has 'extra' for PlainLoginModule",
        ),
        ('a.ScramLoginModule required username="u" password="hush" tokenauth="true";', "has 'tokenauth'"),
        ('a.PlainLoginModule required username="u" password="hush', "can't be read"),
        ('a.PlainLoginModule required username="u" password="hush"; b.C required;', "can't be read"),
        ('a.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="hush";', "has 'unsecuredLogin"),
    ],
)
def test_what_cannot_be_read_is_said_without_showing_it(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        login_of("sasl_jaas_config", text)
    assert str(caught.value).startswith("sasl_jaas_config: ")
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ("", {}),
        ('awsProfileName="orders" awsDebugCreds=true', {"profile_name": "orders"}),
        (
            'awsRoleArn="arn:aws:iam::1:role/x" awsRoleSessionName="s" awsRoleExternalId="e" awsStsRegion="eu-west-1"',
            {
                "role_arn": "arn:aws:iam::1:role/x",
                "role_session_name": "s",
                "role_external_id": "e",
                "sts_region": "eu-west-1",
            },
        ),
    ],
)
@pytest.mark.parametrize(
    "module", ["software.amazon.msk.auth.iam.IAMLoginModule", f"{KAFKA}.oauthbearer.OAuthBearerLoginModule"]
)
def test_amazons_login_module(module: str, options: str, read: dict[str, str]) -> None:
    assert login_of("o", f"{module} required {options};") == ({"sasl_identity": read} if read else {})


def test_an_option_of_amazons_module_that_is_not_read() -> None:
    with pytest.raises(ConfigError, match="has 'awsMskRegionProvider' for IAMLoginModule: awsProfileName, "):
        login_of("o", 'a.IAMLoginModule required awsMskRegionProvider="x";')
