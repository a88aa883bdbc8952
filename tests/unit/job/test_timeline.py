"""The timeline of a job: bounded, and read from a number on."""

from kafka_actors.job.machines.timeline import Timeline


def test_a_timeline_counts_on_and_keeps_the_last():
    timeline = Timeline(most=3)
    for n in range(5):
        timeline.note("state", f"{n}", 10.0 + n)
    assert [(e.number, e.text, e.at_s) for e in timeline.after()] == [
        (3, "2", 12.0),
        (4, "3", 13.0),
        (5, "4", 14.0),
    ]
    assert [e.number for e in timeline.after(4)] == [5]
    assert timeline.after(5) == []
