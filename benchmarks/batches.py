"""The same records in a producer's default batches of 16 KiB, beside large ones."""

from __future__ import annotations

from benchmarks.common import Section
from benchmarks.consumer import CODECS, reads
from benchmarks.data import DEFAULT, LARGE, Data

RECORDS = 10_000_000
SMALL_NAME, LARGE_NAME = "16 KiB batches", "256 KiB batches"


def sections() -> list[Section]:
    found = []
    for codec in CODECS:
        small = Data(codec, batch_size=DEFAULT, records=RECORDS)
        large = Data(codec, batch_size=LARGE, records=RECORDS)
        clients = {
            SMALL_NAME: reads("our_consumer:batches", small),
            LARGE_NAME: reads("our_consumer:batches", large),
        }
        title = f"Consumer, 100-byte values, {codec}, by the size of the producer's batches"
        found.append(Section(f"batches/{codec}", title, clients, [small, large]))
    return found
