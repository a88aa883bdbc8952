import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_actors import __version__
from kafka_actors.actors import Job
from kafka_actors.cli import load
from kafka_actors.cli import run as run_module
from kafka_actors.cli.main import run_command_line
from kafka_actors.cli.run import closing_line, parse_settings
from kafka_actors.cli.watch import End
from kafka_actors.errors import ConfigError


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["--version"]) == 0
    assert capsys.readouterr().out == f"kafka-actors {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "Missing argument 'TARGET'."),
        (["run", "x:y", "--worker", "4"], "No such option '--worker'. Did you mean '--workers'?"),
        (
            ["run", "x:y", "--workers", "0"],
            "Invalid value for '-w' / '--workers': 0 is not in the range x>=1.",
        ),
        (["run", "x:y", "--until", "never"], "Invalid value for '--until': 'never' is not 'latest'."),
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["demo", "--orders", "many"], "Invalid value for '--orders': 'many' is not a valid integer range."),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"kafka-actors: error: {says}\n"


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([]) == 2
    assert "Commands:\n  demo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.py:job"], "there is no file none.py"),
        (["shop.py:job", "-X", "sesion_timeout_ms=1"], "sesion_timeout_ms: is not an option; did you mean"),
        (["shop.py:job", "-X", "retries=x"], "retries: is 'x': expected `int`, got `str`"),
        (["shop.py:job", "-X", "retries"], "-X: is 'retries': give NAME=VALUE"),
        (["shop.py:job", "-b", "broker:port"], "bootstrap_servers: "),
        (["shop.py:job", "-X", "ssl.cafile=x"], "ssl_cafile: is given, but security_protocol is 'PLAINTEXT'"),
    ],
)
def test_a_wrong_option_fails_before_anything_starts(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        run_module, "load_job", lambda target: _job() if target[:4] == "shop" else load.load_job(target)
    )
    monkeypatch.setattr(Job, "start", lambda self: pytest.fail("it was started"))
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["run", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"kafka-actors: error: {says}")
    assert err.count("\n") == 1


def test_a_traceback_comes_only_with_debug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken_by_test.py"
    broken.write_text("1 / 0\n")
    assert run_command_line(["run", f"{broken}:job"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert run_command_line(["run", f"{broken}:job", "--debug"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("Traceback")
    assert err[-1].startswith("kafka-actors: error: ")
    assert err[-1].endswith("(broken_by_test.py, line 1): ZeroDivisionError: division by zero")


def _job() -> Job:
    return Job(topics=["t"], group_id="g", bootstrap_servers="a:1", process=print)


def test_options_come_from_the_environment_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Job] = []

    def start(job: Job) -> None:
        started.append(job)

    monkeypatch.setattr(run_module, "load_job", lambda target: _job())
    monkeypatch.setattr(run_module, "start", start)
    monkeypatch.setenv("KAFKA_ACTORS_WORKERS", "3")
    monkeypatch.setenv("KAFKA_ACTORS_GROUP_ID", "of-the-environment")
    assert run_command_line(["run", "x:y"]) == 0
    assert run_command_line(["run", "x:y", "--workers", "5", "-g", "of-the-line"]) == 0
    assert [(job.workers, job.config.group_id) for job in started] == [
        (3, "of-the-environment"),
        (5, "of-the-line"),
    ]


def test_settings_take_dotted_and_underscored_names_and_no_contradictions() -> None:
    assert parse_settings(("session.timeout.ms=1", "a_b=x=y"), group_id=None) == {
        "session_timeout_ms": "1",
        "a_b": "x=y",
    }
    with pytest.raises(ConfigError, match="group_id: is given twice"):
        parse_settings(("group.id=a",), group_id="b")


def test_the_command_line_starts_without_ray_and_without_a_kafka_client() -> None:
    code = (
        "import sys; from kafka_actors.cli.main import run_command_line; run_command_line(['--version']); "
        "print([m for m in ('ray', 'confluent_kafka', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


def test_a_reader_that_has_enough_ends_the_command_without_a_word() -> None:
    code = (
        "import click; from kafka_actors.cli.options import command\n"
        "@click.command()\n@command\ndef much(output):\n"
        "    for _ in range(1000): output.print('x' * 1000)\n    return 0\n"
        "much()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_closing_line() -> None:
    from kafka_actors.cli.progress import Reading

    reading = Reading(2.0, "stopped", "g", 1, 5_000, 0.0, 0, 1, [], [])
    assert closing_line(End.FINISHED, reading) == "done: 5,000 records in 2.0 s (2,500/s), 1 restart"
    assert closing_line(End.STOPPED, reading).startswith("stopped: 5,000 records")
