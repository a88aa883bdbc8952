"""The points of the plots: bounded, and read from a number on."""

import msgspec
from fakes.status_sample import sample_history, sample_status

from kafka_actors.job.status import JobStatus, JobTotals
from kafka_actors.status_page.machines.history import History, PlotHistory


def totals(rate):
    return JobTotals(records_per_s=rate, value_bytes_per_s=10 * rate, latency_p50_ms=1.0, latency_p99_ms=2.0)


def numbers(history):
    return [point.number for point in history.points]


def test_points_come_from_a_number_on():
    moments = PlotHistory("r")
    for second in range(5):
        moments.add(totals(float(second)), 100.0 + second)
    whole = moments.after()
    assert (whole.run, whole.last, numbers(whole)) == ("r", 5, [1, 2, 3, 4, 5])
    assert numbers(moments.after(3)) == [4, 5]
    assert numbers(moments.after(5)) == []
    assert [p.records_per_s for p in whole.points] == [0, 1, 2, 3, 4]
    assert (whole.points[-1].value_bytes_per_s, whole.points[-1].latency_p99_ms) == (40.0, 2.0)
    assert whole.points[-1].at_s == 104.0


def test_who_knows_more_than_there_is_has_read_from_another_run_and_gets_all():
    moments = PlotHistory("r")
    moments.add(totals(1.0), 100.0)
    assert numbers(moments.after(900)) == [1]


def test_old_points_go():
    moments = PlotHistory("r", every_s=1.0, keeps_s=10.0)
    for second in range(25):
        moments.add(totals(1.0), float(second))
    assert numbers(moments.after()) == list(range(16, 26))
    assert numbers(moments.after(2)) == list(range(16, 26))
    assert (moments.after().last, moments.after().keeps_s) == (25, 10.0)


def test_a_moment_at_which_nobody_knows_is_a_point_without_values():
    moments = PlotHistory("r")
    moments.add(None, 100.0)
    (point,) = moments.after().points
    assert {getattr(point, name) for name in point.__struct_fields__[2:]} == {None}
    assert (point.number, point.at_s) == (1, 100.0)


def test_samples_are_read_back_from_their_json():
    for sample, kind in ((sample_status(), JobStatus), (sample_history(), History)):
        assert msgspec.json.decode(msgspec.json.encode(sample), type=kind) == sample
