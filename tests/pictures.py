"""Takes the pictures of README and documentation from a real run: `make docs-pictures`.

A job of four workers reads orders from embedded brokers while they are produced; after a minute one worker is killed. Then the
status page is opened in Chromium, and what `kafka-actors run` and `kafka-actors top` have drawn on their terminals becomes pictures.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import patient_ray
import pyte
from fakes.chromium import Chromium, program
from pace import Measuring
from waiting import until

import kafka_actors as ka
from kafka_actors.testing import FakeKafka

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COMMAND = Path(sys.executable).with_name("kafka-actors")
COLUMNS, LINES = 118, 34
RATE = 4_000
"""Orders a second."""
BEFORE_KILL_S, AFTER_KILL_S = 45.0, 35.0
TOPIC, PARTITIONS = "orders", 8

JOB = """
import os
import time

import kafka_actors as ka
import pyarrow as pa


def score(batch: pa.RecordBatch) -> None:
    time.sleep(batch.num_rows / 2_000)  # a worker scores two thousand orders a second


job = ka.Job(
    topics=["orders"],
    group_id="scorer",
    bootstrap_servers=os.environ["BOOTSTRAP"],
    process=score,
    batch_rows=500,
    config={"group_instance_id": None},  # which the embedded brokers don't know
)
"""

PAGE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #16181d; display: inline-block; }
pre { margin: 0; padding: 16px 20px; color: #d6d9e0; font: 14px/1.35 "DejaVu Sans Mono", monospace; }
</style><pre>%s</pre>"""
COLOURS = {
    **{"black": "#5c6370", "red": "#f4707b", "green": "#7fd58a", "brown": "#e5c07b", "blue": "#6cb2f7"},
    **{"magenta": "#d08be8", "cyan": "#5fc9d6", "white": "#f2f4f8"},
}


class Terminal:
    """A command on a terminal of its own, and what stands on its screen."""

    def __init__(self, *arguments: object, env: dict[str, str], cwd: Path) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.heard = b""
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        words = [str(COMMAND), *map(str, arguments)]
        terminal = {**env, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        self._process = subprocess.Popen(
            words, stdin=there, stdout=there, stderr=there, env=terminal, cwd=cwd, start_new_session=True
        )
        os.close(there)
        self._reader = threading.Thread(target=self._read, args=(here,), daemon=True)
        self._reader.start()

    def _read(self, source: int) -> None:
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while data := os.read(source, 65_536):
                with self._lock:
                    self.heard += data
                    self._stream.feed(data)
        os.close(source)

    def html(self) -> str:
        """The screen as a page, without the empty lines at its end."""
        with self._lock:
            rows = [[self._screen.buffer[y][x] for x in range(COLUMNS)] for y in range(LINES)]
        lines = ["".join(map(_cell, row)) for row in rows]
        while lines and not re.sub(r"<[^>]*>", "", lines[-1]).strip():
            lines.pop()
        return PAGE % "\n".join(lines)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """Ends the program as Ctrl-C does, and waits for its end."""
        if not self.ended():
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
            self._process.kill()
        self._process.wait()


def _cell(char: Any) -> str:
    style = "font-weight:600;" if char.bold else ""
    if char.fg != "default":
        style += f"color:{COLOURS.get(char.fg.removeprefix('bright'), '#' + char.fg)};"
    text = escape(char.data)
    return f'<span style="{style}">{text}</span>' if style else text


@contextlib.contextmanager
def orders(servers: str) -> Iterator[None]:
    """Produces them until it is left."""
    over = threading.Event()

    def produce() -> None:
        with ka.Producer(bootstrap_servers=servers) as producer:
            number, began = 0, time.monotonic()
            while not over.wait(0.05):
                due = int((time.monotonic() - began) * RATE)
                for each in range(number, due):
                    producer.send(
                        TOPIC, b'{"id": %d, "cents": %d}' % (each, 100 + each % 900), key=b"%d" % each
                    )
                number = due

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def status(page: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{page}status.json", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def take(directory: Path) -> None:
    """Runs the job, kills a worker, and takes the pictures."""
    (directory / "work.py").write_text(JOB)
    with contextlib.ExitStack() as all_of_it:
        cluster = all_of_it.enter_context(FakeKafka(brokers=3))
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        env = {
            **os.environ,
            "BOOTSTRAP": cluster.bootstrap_servers,
            "RAY_TMPDIR": str(directory),
            **patient_ray.environment(),
        }
        run = Terminal("run", "work.py:job", "--workers", "4", "--status", ":0", env=env, cwd=directory)
        all_of_it.callback(run.stop)
        said = re.compile(rb"http://[\w.:-]+/?")
        until(lambda: run.ended() or said.search(run.heard), 120, "the job to say where its page is")
        address = said.search(run.heard)
        assert address is not None, run.heard.decode(errors="replace")
        page = address[0].decode().rstrip("/") + "/"
        all_of_it.enter_context(orders(cluster.bootstrap_servers))
        time.sleep(BEFORE_KILL_S)
        os.kill(status(page)["workers"][1]["pid"], signal.SIGKILL)
        time.sleep(AFTER_KILL_S)
        assert not run.ended(), run.heard.decode(errors="replace")[-2_000:]

        top = Terminal("top", page, env=env, cwd=directory)
        all_of_it.callback(top.stop)
        until(lambda: b"worker-" in top.heard, 60, "top to show the job")
        browser = all_of_it.enter_context(Chromium(directory / "chromium"))
        shown = all_of_it.enter_context(browser.page(width=1280, height=900))
        shown.open(page)
        shown.wait("document.querySelector('#rows .badge') !== null")
        time.sleep(3)  # for a second point of each plot
        shown.screenshot(PICTURES / "status-page.png")
        for name, terminal in (("run", run), ("top", top)):
            file = directory / f"{name}.html"
            file.write_text(terminal.html())
            shown.look(1060, 100)
            shown.open(file.as_uri())
            shown.screenshot(PICTURES / f"{name}.png")


def main() -> None:
    if program() is None:
        sys.exit("pictures are taken with Chromium: apt-get install chromium fonts-dejavu-core")
    PICTURES.mkdir(exist_ok=True)
    measuring = Measuring()  # waits are by the machine's pace
    try:
        with tempfile.TemporaryDirectory(prefix="ka-") as directory:  # short: Ray has sockets in it
            take(Path(directory))
    finally:
        measuring.close()
    for file in sorted(PICTURES.glob("*.png")):
        print(f"{file.relative_to(PICTURES.parents[1])} {file.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
