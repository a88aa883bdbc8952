"""The status of a job as one value."""

from fakes.status_sample import sample_status
from msgspec.structs import replace

from kafka_actors.job.status import JobTotals


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
