"""Round trips of arbitrary messages, and hostile bytes: only DecodeError, memory in proportion to the bytes."""

import random
import struct
import tracemalloc

import pytest
from fakes.arbitrary import MESSAGES, RECEIVED, decode_hostile, filled, in_some_version, messages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_actors import protocol
from kafka_actors.errors import DecodeError


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(in_some_version(MESSAGES), st.data())
def test_what_is_encoded_is_decoded(which, data):
    cls, version = which
    message = data.draw(messages(cls, version))
    body = protocol.encode(message, version)
    assert protocol.decode_message(cls, version, body) == message
    assert protocol.encode(protocol.decode_message(cls, version, memoryview(body)), version) == body


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(in_some_version(MESSAGES), st.data())
def test_every_prefix_is_refused(which, data):
    cls, version = which
    body = protocol.encode(data.draw(messages(cls, version)), version)
    for cut in range(len(body)):
        with pytest.raises(DecodeError):
            protocol.decode_message(cls, version, body[:cut])


@settings(max_examples=600)
@given(in_some_version(RECEIVED), st.binary(max_size=300))
def test_arbitrary_bytes_are_decoded_or_refused(which, body):
    decode_hostile(*which, body)


@pytest.mark.parametrize("cls", RECEIVED, ids=lambda cls: cls.__name__)
def test_damaged_messages_are_decoded_or_refused(cls):
    rng = random.Random(cls.__name__)
    for version in range(cls.min_version, cls.max_version + 1):
        good = filled(cls, version)
        for _ in range(300):
            body = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                body[rng.randrange(len(body))] = rng.choice(
                    [0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)]
                )
            decode_hostile(cls, version, bytes(body))


@pytest.mark.parametrize(
    "filler", [b"\x00", b"\x01", b"\x7f", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x00\x00\x00\x01"]
)
def test_memory_stays_in_proportion_to_the_bytes(filler):
    size = 20_000
    body = (filler * size)[:size]
    tracemalloc.start()
    try:
        for cls in RECEIVED:
            for version in {cls.min_version, cls.latest}:
                decode_hostile(cls, version, b"")  # compiled before it is measured
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                decode_hostile(cls, version, body)
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak < 200 * size, f"{cls.__name__} v{version} took {peak} bytes for {size}"
    finally:
        tracemalloc.stop()


def test_a_huge_count_allocates_nothing():
    count = struct.pack(">i", 0x7FFFFFFF)
    body = b"\x00\x00" + count + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"api_keys: a length or count of 2147483647"):
            protocol.decode(protocol.ApiVersionsRequest, 0, "response", body)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
