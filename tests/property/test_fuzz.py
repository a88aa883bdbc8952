"""Bytes from the network, of every kind and none: a named error at worst, soon, and in memory of their size."""

from __future__ import annotations

import base64
import json
import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from fakes.arbitrary import RECEIVED, decode_hostile, filled, messages
from fakes.schema_targets import SCHEMA_SEEDS, SCHEMA_TARGETS
from fakes.targets import NONCE, TARGETS, framed, scram_messages, token_answers
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import userdata
from kafka_actors import protocol
from kafka_actors.errors import DecodeError
from kafka_actors.net.machines.framing import FrameBuffer
from kafka_actors.protocol import ConsumerProtocolSubscription, MetadataResponse, encode
from kafka_actors.protocol.messages.consumer_protocol_subscription import TopicPartition
from kafka_actors.protocol.schema import Message


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=200)
@given(data=st.binary(max_size=600))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", SCHEMA_TARGETS)
def test_values_of_which_some_bytes_were_changed_are_one_row_or_one_error(name: str) -> None:
    choice = random.Random(1)
    SCHEMA_TARGETS[name](SCHEMA_SEEDS[name])
    for _ in range(300):
        SCHEMA_TARGETS[name](mutated(SCHEMA_SEEDS[name], choice))


def mutated(good: bytes, choice: random.Random) -> bytes:
    """Some bytes of a good message changed, cut out, doubled or put elsewhere."""
    data = bytearray(good)
    for _ in range(choice.randint(1, 4)):
        at, size = choice.randrange(len(data) + 1), choice.randint(0, 8)
        kind = choice.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = choice.choice([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, choice.randrange(256)])
        elif kind == 1:
            del data[at : at + size]
        elif kind == 2:
            data[at:at] = data[at : at + size]
        else:
            data[at:at] = choice.randbytes(size)
    return bytes(data)


@pytest.mark.parametrize("cls", RECEIVED, ids=lambda cls: cls.__name__)
def test_a_message_cut_at_any_byte_is_refused(cls: type[Message]) -> None:
    for version in range(cls.min_version, cls.max_version + 1):
        good = filled(cls, version)
        for size in range(len(good)):
            with pytest.raises(DecodeError):
                protocol.decode_message(cls, version, good[:size])


@pytest.mark.parametrize("cls", RECEIVED, ids=lambda cls: cls.__name__)
def test_a_mutated_message_takes_memory_in_proportion(cls: type[Message]) -> None:
    choice = random.Random(cls.__name__)
    for version in range(cls.min_version, cls.max_version + 1):
        good = filled(cls, version)
        decode_hostile(cls, version, good)  # compiled before it is measured
        for _ in range(20):
            bad = mutated(good, choice)
            tracemalloc.start()
            try:
                decode_hostile(cls, version, bad)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < 20_000 + 200 * len(bad), f"v{version} took {peak} bytes for {len(bad)}: {bad.hex()}"


@given(st.lists(st.binary(min_size=4, max_size=60), max_size=8), st.randoms(use_true_random=False))
def test_frames_come_out_whole_however_they_come_in(bodies: list[bytes], choice: random.Random) -> None:
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    pieces = []
    while stream:
        size = choice.randint(1, len(stream))
        pieces.append(stream[:size])
        stream = stream[size:]
    assert framed(pieces) == (bodies, None)


def test_a_length_that_is_claimed_takes_no_memory() -> None:
    buffer = FrameBuffer()
    tracemalloc.start()
    try:
        assert list(buffer.feed(struct.pack(">i", buffer.maximum) + b"x" * 1_000)) == []
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- what looks nearly right

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
SALTS = st.binary(max_size=30).map(lambda b: base64.b64encode(b).decode()) | PRINTABLE
ITERATIONS = (
    st.sampled_from(["4096", "5000", "4095", "0", "-1", "1e4", "9" * 4000, "16385 ", "٤٠٩٦"]) | PRINTABLE
)


@st.composite
def scram_exchanges(draw: st.DrawFn) -> bytes:
    nonce = draw(st.sampled_from([NONCE, NONCE + "def", "x", ""])) + draw(PRINTABLE | st.just(""))
    rest = draw(st.sampled_from(["", ",", ",m=x", "\n"]))
    first = f"r={nonce},s={draw(SALTS)},i={draw(ITERATIONS)}{rest}"
    final = draw(st.sampled_from(["v=", "e=", "x=", ""])) + draw(SALTS)
    return f"{first}|{final}".encode()


@settings(max_examples=300)
@given(scram_exchanges())
def test_no_broker_without_the_password_passes_scram(data: bytes) -> None:
    scram_messages(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**400), 10**400) | PRINTABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PRINTABLE, inner, max_size=3),
    max_leaves=5,
)


@given(JSON, JSON)
def test_a_token_endpoint_may_answer_what_it_likes(token: object, seconds: object) -> None:
    token_answers(json.dumps({"access_token": token, "expires_in": seconds}).encode())
    token_answers(json.dumps({"access_token": "tok", "expires_in": seconds}).encode())
    token_answers(json.dumps(token).encode())


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'{"access_token":' * 100_000, b"1" * 1_000_000])
def test_a_token_endpoint_may_answer_without_end(body: bytes) -> None:
    token_answers(body)


def framed_by_a_byte(pieces: list[bytes]) -> bytes:
    return b"".join(bytes([min(len(piece), 255)]) + piece[:255] for piece in pieces)


def nearly(good: Callable[[st.DrawFn], bytes]) -> st.SearchStrategy[bytes]:
    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        choice = draw(st.randoms(use_true_random=False))
        pieces = [good(draw) for _ in range(draw(st.integers(1, 4)))]
        return framed_by_a_byte([p if choice.random() < 0.4 else mutated(p, choice) for p in pieces])

    return build()


def subscription(draw: st.DrawFn) -> bytes:
    topics = draw(st.lists(st.sampled_from(["t", "u", "gone"]), max_size=3))
    owned = draw(st.lists(st.tuples(st.sampled_from(["t", "u"]), st.integers(-1, 5)), max_size=4))
    made = ConsumerProtocolSubscription(
        topics=topics,
        user_data=draw(st.none() | st.just(userdata.encode_sticky(owned, draw(st.integers(-1, 3))))),
        owned_partitions=[TopicPartition(topic, [partition]) for topic, partition in owned],
        generation_id=draw(st.integers(-1, 3)),
    )
    version = draw(st.integers(0, 3))
    return protocol.encode_consumer_protocol(made, version)


@settings(max_examples=300)
@given(nearly(subscription))
def test_a_members_words_never_end_the_group(data: bytes) -> None:
    TARGETS["members"](data)


def cluster(draw: st.DrawFn) -> bytes:
    version = draw(st.integers(0, MetadataResponse.max_version))
    return bytes([version]) + encode(draw(messages(MetadataResponse, version)), version)


@settings(max_examples=100)
@given(nearly(cluster))
def test_what_a_broker_says_of_its_cluster_is_taken_in_or_refused(data: bytes) -> None:
    TARGETS["metadata"](data)
