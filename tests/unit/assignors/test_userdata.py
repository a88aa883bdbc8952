"""User data of the sticky assignors: the bytes, and what is made of bytes that are none."""

from __future__ import annotations

import pytest

from assignors import TopicPartition
from assignors.userdata import (
    decode_cooperative_sticky,
    decode_sticky,
    encode_cooperative_sticky,
    encode_sticky,
)

OWNED = [("a", 0), ("a", 2), ("b", 1)]
V0 = bytes.fromhex("00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001")


def test_sticky_bytes() -> None:
    assert encode_sticky(reversed(OWNED), None) == V0
    assert encode_sticky(OWNED, 5) == V0 + bytes.fromhex("00000005")
    assert encode_sticky([]) == bytes.fromhex("00000000 ffffffff")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (V0, (OWNED, -1)),
        (V0 + b"\0\0\0\5", (OWNED, 5)),
        (V0 + b"\0\0\0\5 and more from a later version", (OWNED, 5)),
        (V0 + b"\0\0", (OWNED, -1)),
        (b"\xff\xff\xff\xff\0\0\0\7", ([], -1)),  # fewer than no topics: no generation is behind them
        (None, ([], -1)),
        (b"", ([], -1)),
        (V0[:-1], ([], -1)),
        (b"\xff\xff\xff\xff", ([], -1)),
        (b"\x7f\xff\xff\xff" * 4, ([], -1)),
        (bytes.fromhex("00000001 ffff 00000000"), ([], -1)),
        (bytes.fromhex("00000001 0001 61 7fffffff 00000000"), ([], -1)),
    ],
)
def test_sticky_decoding(data: bytes | None, expected: tuple[list[TopicPartition], int]) -> None:
    assert decode_sticky(data) == expected


def test_a_buffer_is_read_as_bytes_are() -> None:
    assert decode_sticky(memoryview(V0)) == (OWNED, -1)  # type: ignore[arg-type]


@pytest.mark.parametrize("generation", [-1, 0, 7, 2**31 - 1])
def test_cooperative_sticky_round_trip(generation: int) -> None:
    data = encode_cooperative_sticky(generation)
    assert len(data) == 4
    assert decode_cooperative_sticky(data) == generation


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0"])
def test_cooperative_sticky_without_a_generation(data: bytes | None) -> None:
    assert decode_cooperative_sticky(data) == -1
