"""`for message in consumer`, key and value read, beside confluent-kafka's fastest way and its `poll()`."""

from __future__ import annotations

from benchmarks.common import OURS, Section
from benchmarks.consumer import reading
from benchmarks.data import FEWER, Data
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE

CLIENTS = {OURS: "our_consumer:messages", CONFLUENT: "peers:confluent_messages"}
POLL = f"{CONFLUENT}, poll()"


def sections() -> list[Section]:
    data, fewer = Data(), Data(records=FEWER)
    clients = {**reading(CLIENTS, data), **reading({POLL: "peers:confluent_polls"}, fewer)}
    title = "100-byte values, none, message at a time, key and value read"
    notes = f"{CONFLUENT_NOTE}. poll() reads {FEWER:,} of them, once"
    return [Section("messages/none", title, clients, [data, fewer], once=frozenset({POLL}), notes=notes)]
