"""`Azure`: scopes, and errors that name the identity. azure-identity's credential is a stand-in here."""

import azure.identity
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError

from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.identity.azure import Azure, scope_of

HOST = "orders.servicebus.windows.net"


class Credential:
    """Stands for `DefaultAzureCredential`."""

    made = []
    answers = []

    def __init__(self, **options):
        self.made.append(options)

    def get_token(self, *scopes):
        answer = self.answers.pop(0) if self.answers else f"token for {scopes[0]}"
        if isinstance(answer, Exception):
            raise answer
        return AccessToken(answer, 2_000_000_000)


@pytest.fixture(autouse=True)
def credential(monkeypatch):
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Credential)
    Credential.made, Credential.answers = [], []
    return Credential


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        (HOST, f"https://{HOST}/.default"),
        ("orders.servicebus.chinacloudapi.cn", "https://orders.servicebus.chinacloudapi.cn/.default"),
        ("kafka.example.org", None),
    ],
)
def test_the_scope_of_a_namespace(host, scope):
    assert scope_of(host) == scope


def test_a_token_for_the_namespace_that_is_connected_to(credential):
    identity = Azure()
    assert identity.token_for(HOST).reveal() == f"token for https://{HOST}/.default"
    assert identity.token_for(HOST)
    assert credential.made == [{}], "the credential keeps its tokens"


def test_a_scope_and_a_managed_identity_that_are_named(credential):
    identity = Azure(client_id="me", scope="api://orders/.default")
    assert identity.token_for("kafka").reveal() == "token for api://orders/.default"
    assert credential.made == [{"managed_identity_client_id": "me"}]
    assert "client id me" in identity.identity()
    assert repr(identity) == "Azure(client id me)"


def test_a_broker_that_is_no_event_hub_needs_a_scope():
    with pytest.raises(SaslError, match="kafka is no namespace of Event Hubs: give its scope"):
        Azure().token_for("kafka")


def of_status(status):
    error = HttpResponseError("no\nanswer")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServiceRequestError("no route"), ConnectionFailedError),
        (of_status(503), ConnectionFailedError),
        (of_status(429), ConnectionFailedError),
        (of_status(400), SaslError),
        (ClientAuthenticationError("AADSTS7000215:\nInvalid client secret"), SaslError),
        (azure.identity.CredentialUnavailableError("no managed identity"), SaslError),
    ],
)
def test_errors_name_the_identity_and_the_scope(credential, error, kind):
    credential.answers = [error]
    with pytest.raises(kind, match=rf"Azure: client id me, scope https://{HOST}/.default: ") as caught:
        Azure(client_id="me").token_for(HOST)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_an_identity_that_gave_a_token_before_may_be_away_for_a_moment(credential):
    credential.answers = ["t", azure.identity.CredentialUnavailableError("the metadata service restarts")]
    identity = Azure()
    identity.token_for(HOST)
    with pytest.raises(ConnectionFailedError):
        identity.token_for(HOST)
