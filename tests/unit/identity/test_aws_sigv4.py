"""Signatures against AWS's published example, what Amazon's own Java client said, and botocore's signer."""

import base64
import calendar
import json
import time
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from kafka_actors.config.security import Secret
from kafka_actors.identity.aws_sigv4 import AwsCredentials, msk_payload, msk_token, presigned

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
HOST = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
BASIC = AwsCredentials("AKIDEXAMPLE", Secret(SECRET))
SESSION = AwsCredentials("ASIDEXAMPLE", Secret(SECRET), Secret("FwoGZXIvYXdzE+x/y=="))
JAVAS_AGENT = (
    "aws-msk-iam-auth/2.3.2/aws-sdk-java/2.30.23 os/Linux#6.18.44-fc-v657 lang/java#17.0.15 "
    "md/OpenJDK_64-Bit_Server_VM#17.0.15+6-Debian-1deb12u1 md/vendor#Debian"
)


def seconds(moment):
    return float(calendar.timegm(time.strptime(moment, "%Y%m%dT%H%M%SZ")))


def java_said(credentials, signature, **more):
    """The payload of `AWS4SignedPayloadGenerator` of aws-msk-iam-auth 2.3.2, recorded at 2026-11-23 15:56:05 UTC."""
    return {
        "x-amz-date": "20261123T155605Z",
        "x-amz-signedheaders": "host",
        "x-amz-signature": signature,
        "host": HOST,
        "action": "kafka-cluster:Connect",
        "x-amz-expires": "900",
        "version": "2020_10_22",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{credentials.access_key}/20261123/eu-west-1/kafka-cluster/aws4_request",
        "user-agent": JAVAS_AGENT,
        **more,
    }


RECORDED = [
    (BASIC, java_said(BASIC, "ca0c0ed9c6b9ea1931c508929d695f842f12399eaf1440949c8db6db2cda6cec")),
    (
        SESSION,
        java_said(
            SESSION,
            "80510c1342ba1798a9e6c35cf92e0fa168119b1b306d94c9736a8e833575cab6",
            **{"x-amz-security-token": "FwoGZXIvYXdzE+x/y=="},
        ),
    ),
]
JAVAS_TOKEN = (
    "https://kafka.eu-west-1.amazonaws.com?Action=kafka-cluster%3AConnect"
    "&X-Amz-Security-Token=FwoGZXIvYXdzE%2Bx%2Fy%3D%3D&X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Date=20261123T155606Z&X-Amz-SignedHeaders=host&X-Amz-Expires=900"
    "&X-Amz-Credential=ASIDEXAMPLE%2F20261123%2Feu-west-1%2Fkafka-cluster%2Faws4_request"
    "&X-Amz-Signature=a388ec73a56c7cc9954a67bce04a7c00983507a564bd18d2d06c2614b9e24415"
)


def test_the_signature_of_awss_published_example():
    """The presigned GET of "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)"."""
    credentials = AwsCredentials("AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))
    signed = presigned(
        credentials,
        "examplebucket.s3.amazonaws.com",
        "/test.txt",
        {},
        "us-east-1",
        "s3",
        seconds("20130524T000000Z"),
        86400,
        "UNSIGNED-PAYLOAD",
    )
    assert signed["X-Amz-Signature"] == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    assert signed["X-Amz-Credential"] == "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"


@pytest.mark.parametrize(("credentials", "recorded"), RECORDED)
def test_the_message_is_that_of_amazons_java_client(credentials, recorded):
    payload = msk_payload(credentials, HOST, "eu-west-1", seconds("20261123T155605Z") + 0.7, JAVAS_AGENT)
    assert json.loads(payload.reveal()) == recorded


def parameters(url):
    parts = urlsplit(url)
    return parts.scheme, parts.netloc, dict(parse_qsl(parts.query, strict_parsing=True))


def decoded(token):
    text = token.reveal()
    assert "=" not in text
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def test_the_token_is_that_of_amazons_java_client():
    token = msk_token(SESSION, "eu-west-1", seconds("20261123T155606Z"), "me/1")
    scheme, host, found = parameters(decoded(token))
    assert found.pop("User-Agent") == "me/1"
    assert (scheme, host, found) == parameters(JAVAS_TOKEN)


@pytest.mark.parametrize("credentials", [BASIC, SESSION])
@pytest.mark.parametrize("region", ["us-west-2", "cn-north-1", "us-gov-west-1"])
def test_the_token_is_that_of_amazons_python_signer(credentials, region):
    """`aws-msk-iam-sasl-signer-python` signs with botocore's `SigV4QueryAuth`, and so does this test."""
    token = credentials.session_token.reveal() if credentials.session_token else None
    signer = SigV4QueryAuth(
        Credentials(credentials.access_key, credentials.secret_key.reveal(), token),
        "kafka-cluster",
        region,
        expires=900,
    )
    request = AWSRequest(
        method="GET",
        url=f"https://kafka.{region}.amazonaws.com/",
        params={"Action": "kafka-cluster:Connect"},
    )
    signer.add_auth(request)
    expected = parameters(request.url)
    ours = msk_token(credentials, region, seconds(expected[2]["X-Amz-Date"]), "me/1")
    scheme, host, found = parameters(decoded(ours))
    del found["User-Agent"]
    assert (scheme, host, found) == expected


def test_no_secret_is_in_a_repr():
    payload = msk_payload(SESSION, HOST, "eu-west-1", 0.0, "me/1")
    shown = f"{SESSION!r} {payload!r} {[SESSION]}"
    assert SECRET not in shown
    assert "FwoG" not in shown
    assert "ASIDEXAMPLE" in shown
