"""The status of a job as one value."""

import pytest
from fakes.status_sample import sample_status
from msgspec.structs import replace

from kafka_actors.job.status import JobTotals, WindowStatus, key_text, merged


def test_a_status_is_shown_in_one_line_that_a_person_can_read() -> None:
    status = replace(
        sample_status(partitions=4, workers=2),
        name="nightly",
        group_id="scorer",
        state="running",
        records=1_234_567,
        totals=JobTotals(records_per_s=12345.6, lag=30, workers_ready=2),
    )
    assert repr(status) == (
        "<JobStatus 'nightly' of group 'scorer': running, 2 of 2 workers ready, 1,234,567 records, "
        "12,346 records/s, lag 30>"
    )


def test_what_is_not_known_is_left_out() -> None:
    starting = replace(
        sample_status(), name=None, state="starting", workers=[], records=0, totals=JobTotals()
    )
    assert repr(starting).endswith(": starting, 0 of 0 workers ready, 0 records>")
    assert starting.lag == 0


def test_windows_together_are_held_up_by_what_has_waited_longest():
    one, two = (
        WindowStatus(5, 1, 2, 3, 4.0, "offset 7, key #1"),
        WindowStatus(10, 2, 0, 4, 9.0, "offset 3, key #2"),
    )
    assert merged([one, None, two, WindowStatus()]) == WindowStatus(15, 3, 2, 7, 9.0, "offset 3, key #2")
    assert merged([WindowStatus(), WindowStatus()]) == WindowStatus()


def test_without_a_window_there_is_nothing_to_sum():
    assert merged([None, None]) is None


def test_keys_are_shown_as_digests():
    assert key_text(b"alice@example.org") != key_text(b"bob@example.org")
    assert "alice" not in key_text(b"alice@example.org")
    assert key_text(None) == "without a key"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"alice", "key 'alice'"),
        (b"\xff\x00", "key 0xff00"),
        (None, "without a key"),
        (b"k" * 99, f"key '{'k' * 38}…"),
    ],
)
def test_keys_are_shown_whole_where_they_are_not_redacted_but_long_ones(key, text):
    assert key_text(key, redact=False) == text
