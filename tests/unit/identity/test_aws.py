"""`AwsMsk`: regions, credentials from the environment, and errors that name the identity."""

import json

import botocore.credentials
import botocore.exceptions
import botocore.session
import pytest

from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.identity.aws import AwsMsk, region_of

HOST = "b-2.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com", "us-east-1"),
        ("b-1.x.c1.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("b-1.x.c1.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.x.c1.kafka.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("b-1.my-orders-1.c1.kafka.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("kafka.example.org", None),
        ("localhost", None),
        ("10.0.0.1", None),
    ],
)
def test_the_region_in_a_brokers_name(host, region):
    assert region_of(host) == region


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def said(identity, host=HOST):
    return json.loads(identity.payload_for(host).reveal())


def test_credentials_of_the_environment_sign_for_the_broker():
    payload = said(AwsMsk(clock=lambda: 0.0))
    assert payload["host"] == HOST
    assert payload["x-amz-credential"] == "AKIDEXAMPLE/19700101/eu-west-1/kafka-cluster/aws4_request"
    assert payload["user-agent"].startswith("kafka-actors/")
    assert "hush" not in json.dumps(payload)


def test_the_region_is_the_given_one_the_hosts_or_that_of_the_environment(environment):
    scope = "AKIDEXAMPLE/19700101/{}/kafka-cluster/aws4_request"
    assert said(AwsMsk(region="us-east-2", clock=lambda: 0.0))["x-amz-credential"] == scope.format(
        "us-east-2"
    )
    with pytest.raises(SaslError, match=r"the region of broker is unknown.*set AWS_REGION"):
        said(AwsMsk(), "broker")
    environment.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert said(AwsMsk(clock=lambda: 0.0), "broker")["x-amz-credential"] == scope.format("eu-north-1")
    environment.setenv("AWS_REGION", "eu-south-1")
    assert said(AwsMsk(clock=lambda: 0.0), "broker")["x-amz-credential"] == scope.format("eu-south-1")


def test_a_profile_of_the_files(environment, tmp_path):
    (tmp_path / "credentials").write_text(
        "[orders]\naws_access_key_id=AKIDPROFILE\naws_secret_access_key=hush2\n"
    )
    identity = AwsMsk(profile_name="orders")
    assert said(identity)["x-amz-credential"].startswith("AKIDPROFILE/")
    assert "profile orders, access key AKIDPROFILE" in identity.identity()
    assert "kafka-cluster:Connect" in identity.identity()


def test_a_profile_that_is_not_there():
    with pytest.raises(SaslError, match="AWS: profile nobody: ProfileNotFound"):
        AwsMsk(profile_name="nobody").token_for(HOST)


def test_a_profile_that_is_not_there_is_the_same_error_where_it_was_to_name_the_region():
    with pytest.raises(SaslError, match="AWS: profile nobody: ProfileNotFound"):
        AwsMsk(profile_name="nobody").payload_for("kafka-1.internal.example")


def test_no_credentials_say_where_they_were_looked_for(environment):
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    identity = AwsMsk()
    with pytest.raises(
        SaslError, match="AWS's default identity: there are no credentials in the environment"
    ):
        identity.payload_for(HOST)
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIDLATER")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert said(identity)["x-amz-credential"].startswith("AKIDLATER/"), "they are looked for again"


class Failing:
    def __init__(self, error):
        self.error = error

    def get_frozen_credentials(self):
        raise self.error


def client_error(code, status):
    response = {
        "Error": {"Code": code, "Message": "not\nyou"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return botocore.exceptions.ClientError(response, "AssumeRole")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client_error("AccessDenied", 403), SaslError),
        (client_error("Throttling", 400), ConnectionFailedError),
        (client_error("InternalFailure", 500), ConnectionFailedError),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="https://sts"), ConnectionFailedError),
        (botocore.exceptions.ConnectTimeoutError(endpoint_url="https://sts"), ConnectionFailedError),
        (botocore.exceptions.MetadataRetrievalError(error_msg="x"), ConnectionFailedError),
        (RuntimeError("Credentials were refreshed, but are still expired."), ConnectionFailedError),
        (ValueError("Unsupported host"), SaslError),
        (botocore.exceptions.UnauthorizedSSOTokenError(), SaslError),
    ],
)
def test_what_may_pass_is_tried_again_and_what_does_not_is_an_error(monkeypatch, error, kind):
    monkeypatch.setattr(botocore.session.Session, "get_credentials", lambda _: Failing(error))
    with pytest.raises(kind, match="AWS: profile orders: ") as caught:
        AwsMsk(profile_name="orders").token_for(HOST)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None


def test_nothing_secret_is_shown():
    identity = AwsMsk(role_arn="arn:aws:iam::1:role/orders", role_external_id="x")
    assert repr(identity) == "AwsMsk(role arn:aws:iam::1:role/orders)"
