"""`for message in consumer`, key and value read, beside confluent-kafka's fastest way and its `poll()`."""

from __future__ import annotations

from benchmarks.common import OURS, Section
from benchmarks.consumer import reading
from benchmarks.data import Data
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE

CLIENTS = {
    OURS: "our_consumer:messages",
    CONFLUENT: "peers:confluent_messages",
    f"{CONFLUENT}, poll()": "peers:confluent_polls",
}


def sections() -> list[Section]:
    data = Data()
    title = "100-byte values, none, message at a time, key and value read"
    return [Section("messages/none", title, reading(CLIENTS, data), [data], notes=CONFLUENT_NOTE)]
