import io
import json
import logging
import sys
from typing import Any

import pytest
from rich.console import Console

from kafka_actors.cli.output import Output
from kafka_actors.telemetry.logs import TextFormatter


class Streams:
    """What the process's two streams got. Made inside the test: between fixtures and test pytest sets its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, terminal: bool = False) -> None:
        self.out, self.err = _Stream(terminal), _Stream(terminal)
        monkeypatch.setattr(sys, "stdout", self.out)
        monkeypatch.setattr(sys, "stderr", self.err)

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.err.getvalue().splitlines()]


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def _a_terminal_with_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


RAY_LINE = "\x1b[36m(WorkerActor pid=71)\x1b[0m 2026-11-21 10:00:00,250 WARNING kafka_actors.events: Slow x=1"


def test_lines_of_actors_go_to_stderr_whichever_stream_ray_prints_them_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = Streams(monkeypatch)
    with Output():
        print("\x1b[36m(WorkerActor pid=71)\x1b[0m hello from process")
        print("(WorkerActor pid=72, ip=10.0.0.2) and from there", file=sys.stderr)
        print("a result")
    assert streams.out.getvalue() == "a result\n"
    assert streams.err.getvalue() == (
        "(WorkerActor pid=71) hello from process\n(WorkerActor pid=72, ip=10.0.0.2) and from there\n"
    )


def test_streams_are_what_programs_take_them_for(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A job's file may say of its output what any program does."""
    with open(1, "w", encoding="ascii", closefd=False) as real, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", real)
        with Output():
            assert isinstance(sys.stdout, io.TextIOBase)
            sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[attr-defined]
            print("größer")
            sys.stdout.buffer.write(b"bytes\n")
            sys.stdout.flush()
            with pytest.raises(AttributeError, match="no attribute 'nothing'"):
                sys.stdout.nothing  # type: ignore[attr-defined]  # noqa: B018
            print("without an end", end="")
    assert capfdbinary.readouterr().out == "größer\nbytes\nwithout an end\n".encode()


def test_colour_of_forwarded_lines_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Streams(monkeypatch, terminal=True)
    with Output():
        print(RAY_LINE)
    assert "\x1b[36m" in terminal.err.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Streams(monkeypatch, terminal=True)
    with Output():
        print(RAY_LINE)
    assert "\x1b" not in terminal.err.getvalue()


def test_json_keeps_level_logger_time_and_origin_of_an_actors_line(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    with Output("json"):
        print(RAY_LINE, file=sys.stderr)
    (record,) = streams.errors
    assert record["level"] == "WARNING"
    assert record["logger"] == "kafka_actors.events"
    assert record["message"] == "Slow x=1"
    assert (record["ray_actor"], record["pid"]) == ("WorkerActor", 71)
    assert record["time"].endswith("00.250+00:00")


def test_what_actors_log_is_read_back_in_the_format_they_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    written = TextFormatter().format(
        logging.makeLogRecord({"name": "a.b", "msg": "m", "levelname": "INFO", "fields": {"topic": "t"}})
    )
    with Output("json"):
        print(f"(CoordinatorActor pid=5) {written}")
    assert {k: streams.errors[0][k] for k in ("level", "logger", "message", "topic", "ray_actor")} == {
        "level": "INFO",
        "logger": "a.b",
        "message": "m",
        "topic": "t",
        "ray_actor": "CoordinatorActor",
    }


def test_every_line_of_a_json_log_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    with Output("json", "info") as output:
        logging.getLogger("kafka_actors.x").info("one %d", 1, extra={"lag": 3, "_of_a_library": 5})
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logging.getLogger("kafka_actors.x").exception("it failed")
        print("something of a library", file=sys.stderr)
        print("(raylet) something of Ray", file=sys.stderr)
        output.error("the end", "Traceback …")
    records = streams.errors
    assert [r["message"] for r in records] == [
        "one 1",
        "it failed",
        "something of a library",
        "something of Ray",
        "the end",
    ]
    assert records[0]["lag"] == 3
    assert "_of_a_library" not in records[0]
    assert "ValueError: two\nlines" in records[1]["traceback"]
    assert (records[4]["level"], records[4]["traceback"]) == ("ERROR", "Traceback …")
    assert streams.out.getvalue() == ""


def test_the_level_is_that_of_our_own_loggers_and_others_are_heard_from_warning_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = Streams(monkeypatch)
    with Output("text", "error"):
        logging.getLogger("kafka_actors.x").warning("hidden")
        logging.getLogger("kafka_actors.x").error("shown")
    assert [text.split(" ", 2)[2] for text in streams.err.getvalue().splitlines()] == [
        "ERROR kafka_actors.x: shown"
    ]


def test_an_error_is_one_line_and_a_traceback_comes_only_if_given(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    with Output() as output:
        output.error("topic: is unknown")
    assert streams.err.getvalue() == "kafka-actors: error: topic: is unknown\n"
    with Output() as output:
        output.error("topic: is unknown", "Traceback (most recent call last): …\n")
    assert streams.err.getvalue().splitlines()[1].startswith("Traceback")


def test_a_view_redraws_itself_only_on_a_terminal_with_a_log_for_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Streams(monkeypatch)
    assert not Output().live
    Streams(monkeypatch, terminal=True)
    assert Output().live
    assert not Output("json").live
    monkeypatch.setenv("TERM", "dumb")
    assert not Output().live


def test_log_lines_are_printed_above_a_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Streams(monkeypatch, terminal=True)
    view = io.StringIO()
    with Output() as output:
        output.above(Console(file=view))
        logging.getLogger("kafka_actors.x").warning("[brackets] are text")
        output.above(None)
        logging.getLogger("kafka_actors.x").warning("later")
    assert view.getvalue().endswith("[brackets] are text\n")
    assert "brackets" not in terminal.err.getvalue()
    assert "later" in terminal.err.getvalue()


def test_the_streams_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    with Output():
        assert sys.stdout is not streams.out
    assert sys.stdout is streams.out
    assert sys.stderr is streams.err
    assert not [h for h in logging.getLogger().handlers if type(h).__module__ == "kafka_actors.cli.output"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_line_and_its_end_are_written_together(monkeypatch: pytest.MonkeyPatch, log_format: Any) -> None:
    """Ray prints actors' lines in a thread of its own: one came between a record and its end, and was glued to it."""
    streams = Streams(monkeypatch)
    pieces: list[str] = []
    for stream in (streams.out, streams.err):
        monkeypatch.setattr(stream, "write", pieces.append)
    with Output(log_format) as output:
        print("(CoordinatorActor pid=7) one")
        print("two", file=sys.stderr)
        print("three")
        output.log_line("four")
        output.error("five")
    assert len(pieces) == 5
    assert all(piece.endswith("\n") and piece.count("\n") == 1 for piece in pieces)
