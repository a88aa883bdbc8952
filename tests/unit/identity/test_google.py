"""`Google`: the format of its tokens, and errors that name the identity. google-auth's credentials are a stand-in here."""

import base64
import datetime
import json

import google.auth
import pytest
from google.auth import exceptions

from kafka_actors.config.security import Secret
from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.identity.google import Google, kafka_token

EMAIL = "orders@project.iam.gserviceaccount.com"
EXPIRY = datetime.datetime(2030, 1, 1)  # noqa: DTZ001  as google-auth has it: UTC without a zone


class Credentials:
    def __init__(self, email=EMAIL, error=None):
        self.valid, self.token, self.expiry, self.error = False, None, None, error
        self.service_account_email, self.refreshed = email, 0

    def refresh(self, request):
        if self.error:
            raise self.error
        self.refreshed += 1
        self.valid, self.token, self.expiry = True, f"ya29.{self.refreshed}", EXPIRY


def parts(token):
    return [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.reveal().split(".")]


@pytest.fixture
def use_credentials(monkeypatch):
    def give(credentials):
        asked = []
        monkeypatch.setattr(google.auth, "default", lambda **o: asked.append(o) or (credentials, "project"))
        return asked

    return give


def test_the_format_of_googles_own_clients():
    """`GcpLoginCallbackHandlerTest` decodes the third part to the access token, and asks for typ, alg, exp and the account."""
    header, payload, signature = parts(kafka_token(Secret("fake-access-token"), EMAIL, 1000.4, 4600.9))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(payload) == {
        "exp": 4600,
        "iat": 1000,
        "iss": "Google",
        "scope": "kafka",
        "sub": EMAIL,
    }
    assert signature == b"fake-access-token"


def test_a_token_is_renewed_when_the_credentials_say_so(use_credentials):
    credentials = Credentials()
    asked = use_credentials(credentials)
    identity = Google(clock=lambda: 5.0)
    _, payload, signature = parts(identity.token_for("broker"))
    assert signature == b"ya29.1"
    assert json.loads(payload)["exp"] == 1_893_456_000, "2030-01-01 in UTC, wherever this runs"
    assert parts(identity.token_for("broker"))[2] == b"ya29.1"
    credentials.valid = False
    assert parts(identity.token_for("broker"))[2] == b"ya29.2"
    assert asked == [{"scopes": ["https://www.googleapis.com/auth/cloud-platform"]}], "they are found once"
    assert EMAIL in identity.identity()
    assert "roles/managedkafka.client" in identity.identity()
    assert "ya29" not in repr(identity) + identity.identity()


def test_an_account_that_the_credentials_do_not_tell(use_credentials):
    use_credentials(Credentials(email="default"))
    with pytest.raises(SaslError, match="Credentials does not tell whose they are: give the account"):
        Google().token_for("broker")
    token = Google(email="ann@example.org").token_for("broker")
    assert json.loads(parts(token)[1])["sub"] == "ann@example.org"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.TransportError("no route"), ConnectionFailedError),
        (exceptions.RefreshError("later\nperhaps", retryable=True), ConnectionFailedError),
        (exceptions.RefreshError("invalid_grant"), SaslError),
    ],
)
def test_errors_name_the_identity(use_credentials, error, kind):
    use_credentials(Credentials(error=error))
    with pytest.raises(kind, match=r"Google: ann@example\.org: ") as caught:
        Google(email="ann@example.org").token_for("broker")
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_no_credentials_at_all(monkeypatch):
    def default(**_):
        raise exceptions.DefaultCredentialsError("Your default credentials were not found.")

    monkeypatch.setattr(google.auth, "default", default)
    with pytest.raises(SaslError, match="the application default credentials: DefaultCredentialsError"):
        Google().token_for("broker")
