import struct

import pytest

from kafka_actors.testing import requests


def test_an_assignment_of_the_consumer_protocol_is_read() -> None:
    topics = b"\0\1a" + struct.pack(">iii", 2, 4, 7) + b"\0\1b" + struct.pack(">ii", 1, 0)
    data = struct.pack(">hi", 3, 2) + topics + struct.pack(">i", -1)
    assert requests._assignment(data) == {("a", 4), ("a", 7), ("b", 0)}
    assert requests._assignment(b"") == frozenset()


def test_a_short_answer_is_an_error() -> None:
    with pytest.raises(EOFError, match="shorter"):
        requests._assignment(struct.pack(">hi", 0, 1) + b"\0\5ab")
