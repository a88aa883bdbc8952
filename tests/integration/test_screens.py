"""No screen stays blank: the command says what it waits for, and what no waiting changes ends it before Ray is started."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from fakes.refusing import refusing_address
from waiting import slow_s

COMMAND = Path(sys.executable).with_name("kafka-actors")
JOB = """
import os
import time
import kafka_actors as ka

while not os.path.exists("told"):
    time.sleep(0.05)
job = ka.Job(topics="t", group_id="g", bootstrap_servers="no.such.host.invalid:9092", process=print)
"""


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with refusing_address() as address:
        yield address


@contextmanager
def command(*arguments: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, which is ended in any case."""
    process = subprocess.Popen(
        [COMMAND, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(slow_s(60), process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        watchdog.cancel()


def first_with(lines: IO[str] | None, words: str) -> str:
    """Returns the first line with these words. A command that hasn't tried to connect after its first second says that before."""
    assert lines is not None
    return next((line for line in lines if words in line), "")


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "arguments", [("groups", "list"), ("topics", "list"), ("lag", "--group", "g")], ids=lambda a: a[0]
)
def test_a_command_says_why_no_broker_answers_while_it_waits(arguments: tuple[str, ...], nobody: str) -> None:
    with command(*arguments, "-b", nobody) as process:
        said = first_with(process.stderr, "can't connect")
        assert said == f"waiting for a broker: {nobody}: can't connect: {nobody} connection refused\n"
        assert process.poll() is None  # it goes on
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (1, "", "kafka-actors: error: interrupted\n")


def test_a_json_log_has_it_as_an_object(nobody: str) -> None:
    with command("groups", "list", "-b", nobody, "--log-format", "json") as process:
        assert f'"message": "waiting for a broker: {nobody}' in first_with(process.stderr, "can't connect")


@pytest.mark.ray
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 1, "no.such.host.invalid:9092: the name can't be resolved"),
        (
            (
                *("-X", "security_protocol=SASL_PLAINTEXT", "-X", "sasl_mechanism=PLAIN"),
                *("-X", "sasl_plain_username=u", "-X", "sasl_plain_password=${env:NO_SUCH_VARIABLE}"),
            ),
            2,
            "sasl_plain_password: refers to ${env:NO_SUCH_VARIABLE}: there is no such variable",
        ),
    ],
    ids=["a host", "a reference"],
)
def test_what_no_waiting_changes_ends_a_run_before_ray_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "work.py").write_text(JOB)
    (tmp_path / "ray").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with command("run", "work.py:job", *options, cwd=tmp_path) as process:
        said_first = process.stdout.readline() if process.stdout is not None else ""
        (tmp_path / "told").touch()
        out, err = process.communicate()
    assert (process.returncode, said_first, out) == (code, "loading work.py:job\n", "")
    assert err.startswith("kafka-actors: error: ")
    assert said in err
    assert err.count("\n") == 1
    assert os.listdir(tmp_path / "ray") == []
