"""What a person sees of a run: a rate of the last seconds, one line, one table."""

import io
import threading

from kafka_actors.pipeline.bound_pipeline import LiveLine, RateMeter, RunProgress, display_for, html, line


def reading(**more):
    given = {"title": "orders → <scored>", "state": "running", "elapsed_s": 12.3, "records": 1234567}
    return RunProgress(**{**given, "records_per_s": 98765.4, **more})


def test_the_rate_is_that_of_the_last_seconds():
    meter = RateMeter(window_s=5)
    assert meter.observe(0, 100.0) == 0.0
    assert meter.observe(500, 101.0) == 500.0
    for second in range(2, 20):
        found = meter.observe(500, 100.0 + second)
    assert found == 0.0
    assert meter.observe(0, 121.0) == 0.0, "a coordinator that was replaced knows less for a moment"


def test_the_line():
    assert line(reading(lag=42, workers=1)) == (
        "orders → <scored>  running 12 s  1,234,567 records  98,765/s  lag 42  1 worker"
    )
    assert line(reading(batch=7)).endswith("98,765/s  lag -  batch 7")


def test_the_table_is_escaped():
    made = html(reading(lag=42, workers=4))
    assert "<b>orders → &lt;scored&gt;</b>" in made
    assert "<td>1,234,567</td>" in made
    assert "<th>workers</th>" in made


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_is_shown_on_a_terminal_or_where_it_is_wanted_and_written_over():
    assert display_for(None, io.StringIO()) is None
    assert display_for(False, Terminal()) is None
    assert display_for(True, io.StringIO()) is not None
    terminal = Terminal()
    show = display_for(None, terminal)
    show(reading(lag=1_000_000), False)
    show(reading(lag=1), True)
    first, second = terminal.getvalue().split("\r")[1:]
    assert first.endswith("lag 1,000,000")
    assert second.rstrip().endswith("lag 1")
    assert second.endswith("\n")
    assert len(second) == len(first) + 1


def test_a_run_goes_on_without_a_line_where_the_system_gives_no_thread(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    shown = []
    live = LiveLine(lambda: "done", lambda *told: shown.append(told))
    live.start()
    live.last()
    assert shown == [("done", True)]
