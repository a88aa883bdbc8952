"""Messages between the two sides of fetching."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_actors.fetch import FetchedPartition


def fetched(next_offset: int = 5, **fields: Any) -> FetchedPartition:
    return FetchedPartition("t", 0, (0, 0), fetch_offset=5, next_offset=next_offset, **fields)


@pytest.mark.parametrize(
    "answer",
    [
        fetched(error_code=1),
        fetched(error_code=-1),
        fetched(preferred_read_replica=0),
        fetched(size=10),
    ],
)
def test_a_partition_that_got_nowhere_for_a_reason_is_fetched_no_more(answer: FetchedPartition) -> None:
    assert answer.dropped


@pytest.mark.parametrize("answer", [fetched(), fetched(6, size=10)])
def test_a_partition_with_records_or_without_news_is_fetched_on(answer: FetchedPartition) -> None:
    assert not answer.dropped
