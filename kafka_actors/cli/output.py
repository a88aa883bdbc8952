"""The two streams of the command line: results and views on stdout, logs and errors on stderr.

Ray prints the output of actors, with a prefix, to the driver's `sys.stdout` and `sys.stderr`. Such lines belong to the
log: they are recognised here and written to the log's stream in the log's format, above a live view.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any, Literal, TextIO

import click
from rich.console import Console
from rich.text import Text

from kafka_actors.telemetry.logs import JsonFormatter, TextFormatter, read_line

__all__ = ["Output", "encodes_all", "escaping", "note", "put_line", "slow_notice"]

WIDE = 200
BLANK_S = 1.0
"""Seconds before the first notice; the command itself takes most of a second to start."""
LOOK_S = 0.5

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FROM_RAY = re.compile(r"\((?:(?P<actor>[^()]*?) )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^()]+))?\) (?P<text>.*)")
_RAY_ITSELF = re.compile(r"\((?P<actor>raylet|autoscaler|gcs_server)\b[^()]*\) (?P<text>.*)")


def put_line(stream: IO[str], text: str) -> None:
    """Writes a line in one piece: `print` writes its end apart, and the line of another thread may come between."""
    stream.write(text + "\n")
    stream.flush()


def note(text: str) -> None:
    """Writes a line that isn't part of the result to stderr."""
    click.echo(text, err=True)


@contextmanager
def slow_notice(say: Callable[[str], object], text: Callable[[], str] | str) -> Iterator[Callable[[], None]]:
    """Context manager around an operation that may take long: after a second a thread says what is waited for, and again
    when that changes. Yields a function that ends the notices before the block ends."""
    over = threading.Event()

    def notify() -> None:
        last = ""
        wait_s = BLANK_S
        while not over.wait(wait_s):
            now = text if isinstance(text, str) else text()
            if now != last:
                say(now)
            last, wait_s = now, LOOK_S

    def end() -> None:
        over.set()
        if thread is not threading.current_thread():
            thread.join()

    thread = threading.Thread(target=notify, name="kafka-actors-slow-notice", daemon=True)
    thread.start()
    try:
        yield end
    finally:
        end()


class Output:
    """Stands in for `sys.stdout` and `sys.stderr` while a command runs; use it in a with statement.

    `console` writes to the real stdout, with colour only on a terminal and without where NO_COLOR is set.
    """

    def __init__(self, log_format: Literal["text", "json"] = "text", log_level: str = "warning") -> None:
        self.log_format = log_format
        self._level = logging.getLevelNamesMapping()[log_level.upper()]
        self._level_before = logging.NOTSET
        self._stdout, self._stderr = sys.stdout, sys.stderr
        # Off a terminal a line is as long as what it says.
        width = None if self._stdout.isatty() else WIDE
        self.console = _Console(file=self._stdout, highlight=False, width=width)
        self._above: Console | None = None
        self._handler = _Handler(self)

    @property
    def live(self) -> bool:
        """Whether a view may redraw itself: on a terminal, with a log that is for people."""
        return self.log_format == "text" and self.console.is_terminal and not self.console.is_dumb_terminal

    def __enter__(self) -> Output:
        sys.stdout = self._of_stdout = _Lines(self._stdout, self._line_of_stdout)
        sys.stderr = self._of_stderr = _Lines(self._stderr, self._line_of_stderr)
        self._handler.setFormatter(JsonFormatter() if self.log_format == "json" else TextFormatter())
        logging.getLogger().addHandler(self._handler)
        # Its level is also that of the job's actors.
        ours = logging.getLogger("kafka_actors")
        self._level_before = ours.level
        ours.setLevel(self._level)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # nobody reads the streams any more
            self._of_stdout.finish()
            self._of_stderr.finish()
        sys.stdout, sys.stderr = self._stdout, self._stderr
        logging.getLogger().removeHandler(self._handler)
        logging.getLogger("kafka_actors").setLevel(self._level_before)

    def print(self, *what: Any) -> None:
        """Prints a result to stdout, without markup: a program may read its lines where the log is JSON."""
        self.console.print(*what, markup=False, soft_wrap=all(isinstance(w, str) for w in what))

    def discard(self) -> None:
        """Discards output that is still to be flushed, once nobody reads stdout any more."""
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self._stdout.fileno())

    def error(self, text: str, trace: str | None = None) -> None:
        """Writes the one line of an error, and with `--debug` its traceback, to stderr."""
        if self.log_format == "json":
            put_line(self._stderr, json.dumps(_record("ERROR", "kafka_actors.cli", text, traceback=trace)))
            return
        if trace:
            put_line(self._stderr, trace.rstrip())
        put_line(self._stderr, f"kafka-actors: error: {text}")

    def log_line(self, text: str) -> None:
        """Writes a finished line of the log."""
        if self._above is not None and self._stderr.isatty():
            self._above.print(Text(text), soft_wrap=True)
        else:
            put_line(self._stderr, text)

    def above(self, console: Console | None) -> None:
        """Has log lines that go to the terminal printed above the live view on this console; None ends that."""
        self._above = console

    # ------------------------------------------------------------ lines that Ray and libraries print

    def _line_of_stdout(self, text: str) -> None:
        if not self._forwarded(text):
            put_line(self._stdout, text)

    def _line_of_stderr(self, text: str) -> None:
        if self._forwarded(text):
            return
        self.log_line(json.dumps(_record("INFO", "stderr", _ANSI.sub("", text))) if self._json else text)

    @property
    def _json(self) -> bool:
        return self.log_format == "json"

    def _forwarded(self, text: str) -> bool:
        plain = _ANSI.sub("", text)
        found = _FROM_RAY.match(plain) or _RAY_ITSELF.match(plain)
        if found is None:
            return False
        self.log_line(json.dumps(_read_back(found)) if self._json else self._coloured(text, plain))
        return True

    def _coloured(self, text: str, plain: str) -> str:
        return text if self._stderr.isatty() and not os.environ.get("NO_COLOR") else plain


def escaping(stream: TextIO) -> None:
    """Makes a stream escape characters that its encoding lacks (latin-1 an ellipsis, ASCII an umlaut), as stderr does;
    otherwise they would end the program."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


def encodes_all(stream: IO[str]) -> bool:
    """Whether every character can be written as it is."""
    return codecs.lookup(getattr(stream, "encoding", None) or "utf-8").name.startswith("utf")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would raise `SystemExit`, which looks like a signal."""
        raise BrokenPipeError


class _Lines(io.TextIOBase):
    """A text stream that hands over whole lines. All other attributes (`buffer`, `reconfigure`) are the real stream's."""

    def __init__(self, real: TextIO, take: Callable[[str], None]) -> None:
        self._real = real
        self._take = take
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for each in lines:
            self._take(each)
        return len(text)

    def finish(self) -> None:
        """Hands over the last line, which has no end."""
        rest, self._rest = self._rest, ""
        if rest:
            self._take(rest)

    def flush(self) -> None:
        # From Python 3.13 on an object that goes tells of what its last flush raised.
        if not self._real.closed:
            self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def isatty(self) -> bool:
        return self._real.isatty()

    def fileno(self) -> int:
        return self._real.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read only
        return self._real.encoding


class _Handler(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._output.log_line(self.format(record))
        except Exception:
            self.handleError(record)


def _record(level: str, logger: str, message: str, **more: Any) -> dict[str, Any]:
    now = logging.makeLogRecord({}).created
    return {
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        "level": level,
        "logger": logger,
        "message": message,
        **{name: value for name, value in more.items() if value is not None},
    }


def _read_back(found: re.Match[str]) -> dict[str, Any]:
    """Record of a line that Ray forwarded: with the actor's own level, logger, time and fields if it was a line of a log."""
    parts = found.groupdict()
    origin = {
        "ray_actor": parts["actor"],
        "pid": int(parts["pid"]) if parts.get("pid") else None,
        "ip": parts.get("ip"),
    }
    logged = read_line(parts["text"])
    known = {name: value for name, value in origin.items() if value is not None}
    return _record("INFO", "ray", parts["text"], **known) if logged is None else {**logged, **known}
