"""`sasl.jaas.config` as it stands in people's jobs."""

import pytest

from kafka_actors.config.java_security import login_of
from kafka_actors.errors import ConfigError

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
