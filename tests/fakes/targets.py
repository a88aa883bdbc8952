"""Targets of fuzzing: each takes bytes that a broker, another member or a token endpoint may have sent, and raises nothing.

A named error of ours is an answer, and is swallowed here; anything else comes out, and so does whatever a message
should not have been able to do: to pass for an answer that it is not, to ask for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import assignors
from assignors import userdata
from kafka_actors.cluster import ClusterMetadata
from kafka_actors.config import ClientConfig, build
from kafka_actors.config.security import Secret
from kafka_actors.errors import DecodeError, KafkaActorsError, ProtocolError, SaslError
from kafka_actors.group.machines.assignment import (
    TopicsView,
    decode_assignment,
    decode_subscription,
    group_topics,
    perform_assignment,
)
from kafka_actors.net.machines.api_versions import ApiVersionTable, handshake
from kafka_actors.net.machines.framing import FrameBuffer
from kafka_actors.net.machines.sasl import oauthbearer, scram
from kafka_actors.net.security.authentication import authenticate
from kafka_actors.net.security.oauth import parse_answer
from kafka_actors.protocol import (
    ApiKey,
    MetadataResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    decode_header,
    decode_message,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember

from .arbitrary import RECEIVED, decode_hostile
from .messages import RESPONSES
from .schema_targets import SCHEMA_TARGETS

VERSIONS = [(cls, v) for cls in RECEIVED for v in range(cls.min_version, cls.max_version + 1)]
HEADERS = [(key, v) for key, cls in RESPONSES.items() for v in range(cls.min_version, cls.max_version + 1)]
NONCE = "abc"
MAX_QUESTIONS = 4
"""No exchange before a connection is in use takes more."""


def messages(data: bytes) -> None:
    """The body of any response in any version: the first two bytes choose."""
    decode_hostile(*VERSIONS[int.from_bytes(data[:2], "big") % len(VERSIONS)], data[2:])


def headers(data: bytes) -> None:
    """The header in front of any response."""
    try:
        decode_header(*HEADERS[int.from_bytes(data[:2], "big") % len(HEADERS)], "response", data[2:])
    except DecodeError:
        pass


def framing(data: bytes) -> None:
    """A stream of bytes, in pieces of a size that the first byte chooses: the pieces change nothing."""
    size, stream = max(data[0], 1) if data else 1, data[1:]
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert framed(pieces) == framed([stream])


def framed(pieces: list[bytes]) -> tuple[list[bytes], str | None]:
    """The frames of a stream, and the error that ended them."""
    buffer, frames = FrameBuffer(1_000), []
    try:
        for piece in pieces:
            for frame in buffer.feed(piece):
                frames.append(frame)
    except ProtocolError as error:
        return frames, str(error)
    return frames, None


def versions(data: bytes) -> None:
    """Reads an answer to ApiVersions."""
    converse(handshake("me"), cut(data))


def login(mechanism: str) -> Callable[[bytes], None]:
    """Returns the reading of answers to a login: frames with the right ids, and tokens of any kind in them."""
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = _Tokens()
    else:
        options |= {"sasl_plain_username": "ann", "sasl_plain_password": "hush"}
    config = build(ClientConfig, options)
    table = ApiVersionTable({ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)})

    def run(data: bytes) -> None:
        raw, pieces = data[:1] > b"\xf0", cut(data[1:])
        finished = converse(authenticate(config, "kafka", 9092, table), pieces if raw else _answers(pieces))
        assert not finished or not mechanism.startswith("SCRAM"), "nobody proved to know the password"

    return run


class _Tokens:
    def token(self) -> str:
        return "tok.en"


def _answers(pieces: list[bytes]) -> Callable[[bytes], bytes]:
    """Answers as a broker does, with the pieces as tokens; one that begins with 0xFF is an error's text."""
    left = iter(pieces)

    def answer(request: bytes) -> bytes:
        key, version, correlation_id = peek_request(request[4:])
        if key == ApiKey.SASL_HANDSHAKE:
            return response_frame(key, version, correlation_id, SaslHandshakeResponse(mechanisms=["X"]))[4:]
        piece = next(left, b"")
        if piece[:1] == b"\xff":
            said = piece[2:].decode(errors="replace")
            refusal = SaslAuthenticateResponse(
                error_code=int.from_bytes(piece[1:2], "big"), error_message=said
            )
            return response_frame(key, version, correlation_id, refusal)[4:]
        return response_frame(key, version, correlation_id, SaslAuthenticateResponse(auth_bytes=piece))[4:]

    return answer


def converse(steps: Generator[Any, bytes, object], answers: list[bytes] | Callable[[bytes], bytes]) -> bool:
    """Whether the steps came to their end. Raises what they should not raise, and where they go on for ever."""
    left = iter(answers) if isinstance(answers, list) else None
    try:
        request = next(steps)
        for _ in range(MAX_QUESTIONS):
            answer = next(left, b"") if left is not None else answers(bytes(request))  # type: ignore[operator]
            request = steps.send(answer)
    except StopIteration:
        return True
    except KafkaActorsError as error:
        if "\n" in str(error):
            raise AssertionError("more than one line") from error
        return False
    raise AssertionError(f"more than {MAX_QUESTIONS} questions")


def cut(data: bytes) -> list[bytes]:
    """Several answers: each begins with its length, a byte."""
    pieces = []
    while data:
        size = 1 + data[0]
        pieces.append(data[1:size])
        data = data[size:]
    return pieces


def scram_messages(data: bytes) -> None:
    """Both messages of a broker in SCRAM. None of them passes, for it knows no password."""
    first, _, final = data.partition(b"|")
    steps = scram("sha256", "user", Secret("pencil"), NONCE)
    next(steps)
    try:
        steps.send(first)
        steps.send(final)
    except SaslError:
        return
    raise AssertionError("believed")  # StopIteration comes out by itself


def oauth_messages(data: bytes) -> None:
    """Reads a broker's answer to a token."""
    steps = oauthbearer(Secret("tok.en"))
    next(steps)
    try:
        steps.send(data)
        steps.send(data)
    except (SaslError, StopIteration):
        return
    raise AssertionError("it goes on")


def token_answers(data: bytes) -> None:
    """Reads the answer of a token endpoint."""
    try:
        token, seconds = parse_answer("https://idp/token", data)
    except SaslError:
        return
    assert token
    assert 0 <= seconds < float("inf")


def members(data: bytes) -> None:
    """Reads the subscriptions of a group's members as its leader: it assigns every partition whatever they say."""
    joined = [JoinGroupResponseMember(member_id=str(n), metadata=m) for n, m in enumerate(cut(data))]
    known = group_topics(joined)
    view = TopicsView({"t": (0, 1, 4), "u": (0,)})
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        done = perform_assignment(assignors.get(name), joined, view)
        assert [a.member_id for a in done.assignments] == [m.member_id for m in joined]
        given = [tp for a in done.assignments for tp in decode_assignment(a.assignment)]
        assert len(given) == len(set(given)), "two owners"
        wanted = {(t, p) for t in known & set(view.partitions) for p in view.partitions[t]}
        assert set(given) <= wanted if name == "cooperative-sticky" else set(given) == wanted


def blobs(data: bytes) -> None:
    """A subscription, an assignment, and the user data of sticky assignors."""
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except DecodeError:
            pass
    userdata.decode_sticky(data)
    userdata.decode_cooperative_sticky(data)


def metadata(data: bytes) -> None:
    """Metadata responses, one after the other, as far as they can be read: what is known of the cluster follows."""
    cluster = ClusterMetadata(clock=lambda: 0.0, rand=lambda: 0.0)
    for piece in cut(data):
        version = piece[0] % (MetadataResponse.max_version + 1) if piece else 0
        try:
            response = decode_message(MetadataResponse, version, piece[1:])
        except KafkaActorsError:
            continue
        cluster.update_metadata(response, version=version, partial=bool(len(piece) % 2))
        for topic in cluster.topics(exclude_internal_topics=False):
            cluster.partitions_for_topic(topic)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "messages": messages,
    "headers": headers,
    "framing": framing,
    "versions": versions,
    "plain": login("PLAIN"),
    "scram": login("SCRAM-SHA-256"),
    "oauthbearer": login("OAUTHBEARER"),
    "scram-messages": scram_messages,
    "oauth-messages": oauth_messages,
    "token-answers": token_answers,
    "members": members,
    "blobs": blobs,
    "metadata": metadata,
    **SCHEMA_TARGETS,
}
