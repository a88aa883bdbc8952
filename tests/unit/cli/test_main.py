import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.statuses import job

from kafka_actors import __version__
from kafka_actors.cli import job_options
from kafka_actors.cli import load_target as load
from kafka_actors.cli import run as run_module
from kafka_actors.cli.main import run_command_line
from kafka_actors.cli.run import WatchEnd, closing_line, unconfirmed_line
from kafka_actors.job import Autoscale
from kafka_actors.job.status import JobTotals
from kafka_actors.ray import Job


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["--version"]) == 0
    assert capsys.readouterr().out == f"kafka-actors {__version__}\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--help"], "Usage: kafka-actors run"),
        (["config", "show", "--group-id", "größe→"], "group_id "),
        (["config", "show", "--group-id", "größe→", "-o", "json"], '"gr\\u00f6\\u00dfe\\u2192"'),
    ],
)
def test_what_a_terminal_cannot_show_is_escaped(arguments: list[str], says: str, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-m", "kafka_actors", *arguments],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert done.returncode == 0
    assert says in done.stdout.decode(encoding, "replace")  # where it is ASCII, click writes UTF-8


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], 'name the job or pipeline: TARGET, or job = "file.py:name" in the file of -c'),
        (["run", "x:y", "--worker", "4"], "No such option '--worker'. Did you mean '--workers'?"),
        (
            ["run", "x:y", "--workers", "0"],
            "workers: is '0': give a number such as 8, or a range such as 1..16",
        ),
        (["run", "x:y", "--status", "here"], "status: is 'here': give PORT, :PORT or HOST:PORT"),
        (["run", "x:y", "--until", "never"], "Invalid value for '--until': 'never' is not 'latest'."),
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["demo", "--orders", "many"], "Invalid value for '--orders': 'many' is no integer from 1000 on"),
        (["demo", "--orders", "999"], "Invalid value for '--orders': '999' is no integer from 1000 on"),
        (
            ["produce", "-p", "first"],
            "Invalid value for '-p' / '--partition': 'first' is no integer from 0 to 2147483647",
        ),
        (
            ["job", "stop", "a", "--timeout", "soon"],
            "Invalid value for '--timeout': 'soon' is no number from 0 on",
        ),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"kafka-actors: error: {says}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README says how to turn it on."""
    monkeypatch.setenv("_KAFKA_ACTORS_COMPLETE", f"{shell}_source")
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *_: None, raising=False)
    with pytest.raises(SystemExit) as ended:
        run_command_line([])
    assert ended.value.code == 0
    assert f"_KAFKA_ACTORS_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([]) == 2
    assert "Commands:\n  acls" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.py:job"], "there is no file none.py"),
        (["shop.py:job", "-X", "sesion_timeout_ms=1"], "sesion_timeout_ms: is not an option; did you mean"),
        (["shop.py:job", "-g", "a", "-X", "group.id=b"], "group_id: is given twice with different values"),
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
        job_options,
        "load_target",
        lambda target, engine: _job() if target[:4] == "shop" else load.load_target(target),
    )
    monkeypatch.setattr(Job, "start", lambda self, each: pytest.fail("it was started"))
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


def _job() -> load.LoadedTarget:
    job = Job(topics=["t"], group_id="g", bootstrap_servers="a:1", process=print)
    return load.LoadedTarget("x:y", job, "ray")


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Job] = []
    monkeypatch.setattr(job_options, "load_target", lambda target, engine: _job())
    monkeypatch.setattr(run_module, "start", lambda job, view: started.append(job))
    file = tmp_path / "job.toml"
    file.write_text(
        'job = "x:y"\nworkers = 2\ngroup.id = "of-the-file"\nsession_timeout_ms = 20_000\nuntil = "latest"'
    )
    monkeypatch.setenv("KAFKA_ACTORS_WORKERS", "3")
    monkeypatch.setenv("KAFKA_ACTORS_GROUP_ID", "of-the-environment")
    monkeypatch.setenv("KAFKA_ACTORS_CLIENT_ID", "")
    line = ["--workers", "5", "-g", "of-the-line", "-X", "session.timeout.ms=7000"]
    for arguments in (["x:y"], ["x:y", "-X", "group_id=of-X"], ["-c", str(file)], ["-c", str(file), *line]):
        assert run_command_line(["run", *arguments]) == 0
    assert [
        (job.workers, job.config.group_id, job.config.session_timeout_ms, job.until) for job in started
    ] == [
        (3, "of-the-environment", 45_000, None),
        (3, "of-X", 45_000, None),
        (3, "of-the-environment", 20_000, "latest"),
        (5, "of-the-line", 7_000, "latest"),
    ]
    assert started[0].config.client_id.startswith("kafka-actors-")


def test_a_file_finds_its_job_beside_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(job_options, "load_target", lambda target, engine: seen.append(target) or _job())
    monkeypatch.setattr(run_module, "start", lambda job, view: None)
    for name in ("work.py:job", "/elsewhere/work.py:job", "package.module:job"):
        (tmp_path / "job.toml").write_text(f'job = "{name}"')
        assert run_command_line(["run", "-c", str(tmp_path / "job.toml")]) == 0
    assert seen == [f"{tmp_path}/work.py:job", "/elsewhere/work.py:job", "package.module:job"]


def test_workers_may_be_a_range(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    started: list[Job] = []

    def start(job: Job, view: object) -> None:
        started.append(job)

    monkeypatch.setattr(job_options, "load_target", lambda target, engine: _job())
    monkeypatch.setattr(run_module, "start", start)
    assert run_command_line(["run", "x:y", "--workers", "2..8"]) == 0
    monkeypatch.setenv("KAFKA_ACTORS_WORKERS", "1..4")
    assert run_command_line(["run", "x:y"]) == 0
    assert run_command_line(["run", "x:y", "-X", "workers=3"]) == 0
    assert [job.workers for job in started] == [Autoscale(min=2, max=8), Autoscale(min=1, max=4), 3]
    assert run_command_line(["run", "x:y", "--workers", "8..2"]) == 2
    assert "workers.max: is 2: must be at least min (8)" in capsys.readouterr().err
    assert run_command_line(["run", "x:y", "--workers", "0"]) == 2
    monkeypatch.setenv("KAFKA_ACTORS_WORKERS", "some")
    assert run_command_line(["run", "x:y"]) == 2
    assert "(in KAFKA_ACTORS_WORKERS)" in capsys.readouterr().err
    assert len(started) == 3


def test_the_command_line_starts_without_ray_and_without_a_kafka_client() -> None:
    code = (
        "import sys; from kafka_actors.cli.main import run_command_line; run_command_line(['--version']); "
        "print([m for m in ('ray', 'confluent_kafka', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


def test_a_reader_that_has_enough_ends_the_command_without_a_word() -> None:
    code = (
        "import click; from kafka_actors.cli.command import command\n"
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


def test_the_line_of_commits_that_nobody_has_confirmed() -> None:
    one = "no broker has confirmed the last commits of t-0: their last records come again"
    assert unconfirmed_line([("t", 0)]) == one
    many = (
        "no broker has confirmed the last commits of t-0, t-1, t-2 and 2 more: their last records come again"
    )
    assert unconfirmed_line([("t", n) for n in range(5)]) == many
    unknown = "it is not known whether the last commits were confirmed: the last records may come again"
    assert unconfirmed_line([]) == unknown


def test_the_closing_line() -> None:
    status = job(records=5_000, totals=JobTotals(restarts=1))
    assert closing_line(WatchEnd.FINISHED, status, 2.0) == "done: 5,000 records in 2.0 s (2,500/s), 1 restart"
    assert closing_line(WatchEnd.STOPPED, status, 2.0).startswith("stopped: 5,000 records")
