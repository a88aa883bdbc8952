"""Messages that carry secrets show none of them."""

import io

import pytest
from rich.console import Console
from rich.pretty import pprint

from kafka_actors.protocol import SaslAuthenticateRequest, SaslAuthenticateResponse, decode, encode

SECRET = b"\0user\0hunter2"


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(SECRET),
        SaslAuthenticateResponse(auth_bytes=SECRET, error_message="no", error_code=58),
        [SaslAuthenticateRequest(SECRET)],
    ],
    ids=["request", "response", "inside of something"],
)
def test_tokens_are_not_shown(message):
    out = io.StringIO()
    pprint(message, console=Console(file=out))
    for shown in (repr(message), str(message), f"{message}", out.getvalue()):
        assert "hunter2" not in shown
        assert "***" in shown


def test_what_is_no_secret_is_shown():
    answer = SaslAuthenticateResponse(error_code=58, error_message="no", session_lifetime_ms=9)
    assert repr(answer) == (
        "SaslAuthenticateResponse(error_code=58, error_message='no', auth_bytes=***, session_lifetime_ms=9)"
    )


def test_tokens_still_travel():
    sent = encode(SaslAuthenticateRequest(SECRET), 2)
    assert decode(SaslAuthenticateRequest, 2, "request", sent).auth_bytes == SECRET
