"""The clouds' own SDKs against stand-ins of the endpoints that they ask for credentials."""

import base64
import json
import os
import subprocess
import sys
from traceback import TracebackException
from urllib.parse import quote, urlencode

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fakes.cloud_endpoints import (
    CloudEndpoint,
    aws_credentials,
    azure_metadata,
    ec2_metadata,
    google_metadata,
    google_tokens,
    sts,
)
from fakes.loop import in_loop
from waiting import slow_s

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConnectionFailedError, SaslAuthenticationFailedError, SaslError
from kafka_actors.identity import AwsMsk, Azure, Google
from kafka_actors.net import Connection
from kafka_actors.protocol import SaslAuthenticateResponse, SaslHandshakeResponse
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import AnswerWith

MSK = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
HUB = "orders.servicebus.windows.net"
SIGNED = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders")
ROLE = "arn:aws:iam::123456789012:role/orders"


def decoded(part):
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.fixture
def clean(monkeypatch, tmp_path):
    """An environment in which the SDKs find nothing."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    # Of the metadata server, for which botocore and google-auth would wait for one second and for three.
    monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "60")
    monkeypatch.setenv("GCE_METADATA_TIMEOUT", "60")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


# ---------------------------------------------------------------- AWS


def payload(identity):
    return json.loads(identity.payload_for(MSK).reveal())


def test_the_role_of_an_instance(clean):
    with CloudEndpoint(ec2_metadata) as imds:
        clean.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url)
        identity = AwsMsk()
        found = payload(identity)
        assert found["x-amz-credential"].startswith("ASIAINSTANCE/")
        assert found["x-amz-security-token"] == "hush-session"
        asked = len(imds.asked)
        payload(identity)
        assert len(imds.asked) == asked, "credentials are kept until they end"
    assert "hush" not in repr(identity) + identity.identity()


def test_the_role_of_a_container(clean):
    def answer(request):
        return (200, aws_credentials("ASIACONTAINER")) if request[1] == "/v1/me" else (404, "")

    with CloudEndpoint(answer) as container:
        clean.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url + "/v1/me")
        assert payload(AwsMsk())["x-amz-credential"].startswith("ASIACONTAINER/")


def test_a_role_that_is_assumed(clean):
    clean.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with CloudEndpoint(sts) as endpoint:
        clean.setenv("AWS_ENDPOINT_URL_STS", endpoint.url)
        identity = AwsMsk(
            role_arn=ROLE, role_session_name="producer", role_external_id="partner", sts_region="eu-central-1"
        )
        assert payload(identity)["x-amz-credential"].startswith("ASIAROLE/")
        ((_, _, headers, form),) = endpoint.asked
        assert form["Action"] == ["AssumeRole"]
        assert (form["RoleArn"], form["RoleSessionName"], form["ExternalId"]) == (
            [ROLE],
            ["producer"],
            ["partner"],
        )
        assert "AKIAMINE/" in headers["authorization"]
        assert "/eu-central-1/sts/" in headers["authorization"]
        assert f"role {ROLE}, access key ASIAROLE" in identity.identity()


def test_a_role_that_may_not_be_assumed_is_one_line_that_names_it(clean):
    clean.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with CloudEndpoint(sts) as endpoint:
        clean.setenv("AWS_ENDPOINT_URL_STS", endpoint.url)
        with pytest.raises(SaslError) as caught:
            AwsMsk(role_arn=ROLE + "-forbidden").token_for(MSK)
    said = str(caught.value)
    assert said.startswith(f"AWS: role {ROLE}-forbidden: ClientError: An error occurred (AccessDenied)")
    assert "hush" not in said
    assert "\n" not in said


def test_a_web_identity_of_kubernetes(clean, tmp_path):
    (tmp_path / "token").write_text("hush-web")
    clean.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    clean.setenv("AWS_ROLE_ARN", ROLE)
    clean.setenv("AWS_REGION", "eu-west-1")
    clean.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with CloudEndpoint(sts) as endpoint:
        clean.setenv("AWS_ENDPOINT_URL_STS", endpoint.url)
        assert payload(AwsMsk())["x-amz-credential"].startswith("ASIAROLE/")
        ((_, _, _, form),) = endpoint.asked
    assert form["Action"] == ["AssumeRoleWithWebIdentity"]
    assert form["WebIdentityToken"] == ["hush-web"]


def test_an_sts_that_is_not_there_is_tried_again(clean):
    clean.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    clean.setenv("AWS_MAX_ATTEMPTS", "1")
    with CloudEndpoint(sts) as endpoint:
        clean.setenv("AWS_ENDPOINT_URL_STS", endpoint.url)
    with pytest.raises(ConnectionFailedError, match=f"AWS: role {ROLE}: EndpointConnectionError"):
        AwsMsk(role_arn=ROLE).token_for(MSK)


MSK_CONFIG = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "AWS_MSK_IAM",
    "sasl_identity": {"region": "eu-west-1", "profile_name": "orders"},
}


@pytest.fixture
def profile(clean, tmp_path):
    (tmp_path / "credentials").write_text(
        "[orders]\naws_access_key_id=AKIAMINE\naws_secret_access_key=hush\n"
    )


async def signed_in(answer):
    """Signs in at a broker that speaks AWS_MSK_IAM; returns the message that it got."""
    with FakeKafka() as kafka:
        kafka.on("SaslHandshake", AnswerWith(lambda _: SaslHandshakeResponse(mechanisms=["AWS_MSK_IAM"])))
        asked = kafka.on("SaslAuthenticate", AnswerWith(lambda _: answer))
        host, _, port = kafka.bootstrap_servers.partition(":")
        connection = await Connection.open(host, int(port), build(ClientConfig, MSK_CONFIG))
        connection.close()
        return asked.calls[0].request


@in_loop
async def test_a_broker_of_msk_gets_a_signature_that_botocore_makes_as_well(profile):
    said = b'{"version": "2020_10_22", "request-id": "4c5d"}'
    request = await signed_in(SaslAuthenticateResponse(auth_bytes=said))
    found = json.loads(request.auth_bytes)
    signer = SigV4QueryAuth(Credentials("AKIAMINE", "hush"), "kafka-cluster", "eu-west-1", expires=900)
    query = {name: found[name.lower()] for name in ("Action", *SIGNED)}
    asked = AWSRequest("GET", "https://127.0.0.1/?" + urlencode(query, quote_via=quote))
    asked.context["timestamp"] = found["x-amz-date"]
    text = signer.string_to_sign(asked, signer.canonical_request(asked))
    assert found["x-amz-signature"] == signer.signature(text, asked)
    assert found["host"] == "127.0.0.1"


@in_loop
async def test_a_refusal_of_msk_names_identity_and_broker(profile):
    refusal = SaslAuthenticateResponse(error_code=58, error_message="[4c5d]: Access denied")
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        await signed_in(refusal)
    said = str(caught.value)
    assert "127.0.0.1:" in said
    assert "[4c5d]: Access denied; signed as profile orders, access key AKIAMINE: its policy has to" in said
    report = "".join(TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "correlation_id = " in report, (
        "the frames are there with their variables, as error reporters send them"
    )
    assert "hush" not in said + report
    assert "x-amz-signature" not in said + report
    assert "\n" not in said


# ---------------------------------------------------------------- Azure


def test_a_managed_identity(clean):
    with CloudEndpoint(azure_metadata("eyJ.managed.identity")) as imds:
        clean.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", imds.url)
        identity = Azure(client_id="11111111-2222-3333-4444-555555555555")
        assert identity.token_for(HUB).reveal() == "eyJ.managed.identity"
        asked = len(imds.asked)
        identity.token_for(HUB)
        assert len(imds.asked) == asked, "a token is kept until it ends"
        _, _, _, query = imds.asked[-1]
    assert query["resource"] == [f"https://{HUB}"]
    assert query["client_id"] == ["11111111-2222-3333-4444-555555555555"]
    assert "eyJ" not in repr(identity) + identity.identity()


def test_a_managed_identity_that_is_not_there_is_one_line_that_names_it(clean):
    clean.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    with CloudEndpoint(azure_metadata("t")) as imds:
        clean.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", imds.url)
        with pytest.raises(SaslError) as caught:
            Azure(client_id="nobody").token_for(HUB)
    said = str(caught.value)
    assert said.startswith(f"Azure: client id nobody, scope https://{HUB}/.default: ")
    assert "\n" not in said


# ---------------------------------------------------------------- Google


def test_the_key_of_a_service_account(clean, tmp_path):
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with CloudEndpoint(google_tokens) as endpoint:
        email = "orders@project.iam.gserviceaccount.com"
        account = {
            "type": "service_account",
            "project_id": "project",
            "private_key_id": "1",
            "private_key": pem,
        }
        account |= {"client_email": email, "client_id": "1", "token_uri": endpoint.url + "/token"}
        (tmp_path / "account.json").write_text(json.dumps(account))
        clean.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        identity = Google()
        header, claims, token = identity.token_for("broker").reveal().split(".")
        identity.token_for("broker")
        assert len(endpoint.asked) == 1, "a token is kept until it ends"
    assert decoded(header)["alg"] == "GOOG_OAUTH2_TOKEN"
    assert decoded(claims)["sub"] == email
    assert base64.urlsafe_b64decode(token + "==") == b"ya29.key"
    assert "BEGIN" not in repr(identity) + identity.identity()


def test_the_account_of_a_machine(clean):
    """In a process of its own: google-auth reads the variable with the metadata server's address when it is imported."""
    program = "from kafka_actors.identity import Google; print(Google().token_for('broker').reveal())"
    with CloudEndpoint(google_metadata) as endpoint:
        environment = {**os.environ, "GCE_METADATA_HOST": endpoint.host, "GCE_METADATA_IP": endpoint.host}
        said = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=slow_s(60),
        )
    assert said.returncode == 0, said.stderr
    _, claims, token = said.stdout.strip().split(".")
    assert decoded(claims)["sub"] == "machine@project.iam.gserviceaccount.com"
    assert base64.urlsafe_b64decode(token + "==") == b"ya29.machine"
