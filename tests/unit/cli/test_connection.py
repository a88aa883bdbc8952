"""Options of a connection in commands: which source wins, what reaches the command, and that its admin is closed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from kafka_actors.cli import connection
from kafka_actors.cli.connection import admin_command, client_command
from kafka_actors.cli.job_options import OF_RUN
from kafka_actors.cli.main import commands, run_command_line
from kafka_actors.cli.option_sources import PREFIX, OptionValues
from kafka_actors.cli.output import Output
from kafka_actors.options import ConsumerConfig

SEEN: list[Any] = []
"""Arguments of the commands below."""


@click.command("tried")
@click.option("--group", "group_id")
@click.option("--other")
@client_command(ConsumerConfig, "group_id")
def of_a_client(output: Output, settings: OptionValues, **options: Any) -> int:
    SEEN.append((settings, options))
    return 0


@click.command("tried")
@click.option("--fails", is_flag=True)
@admin_command
async def of_an_admin(output: Output, admin: Any, form: str, fails: bool) -> int:
    SEEN.append((admin, form))
    if fails:
        raise OSError("no such file")
    return 3


class Admin:
    """In place of an `AsyncAdmin`: writes down its options and whether it was closed."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.options = config
        self.config = SimpleNamespace(bootstrap_servers=("a:1", "b:2"))
        self.problem = ""
        self.closed = False

    def trouble(self) -> str:
        return self.problem

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", Admin)
    SEEN.clear()


def run(command: click.Command, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setitem(commands.commands, "tried", command)
    return run_command_line(["tried", *arguments])


def settings_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    assert run(of_a_client, monkeypatch, *arguments) == 0
    settings: OptionValues = SEEN[-1][0]
    return settings.options


def test_a_flag_wins_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("c.properties").write_text("client.id=file\nclient.rack=file\nbootstrap.servers=file:1\n")
    file = ("--command-config", "c.properties")
    monkeypatch.setenv("KAFKA_ACTORS_CLIENT_ID", "environment")
    monkeypatch.setenv("KAFKA_ACTORS_BOOTSTRAP_SERVERS", "environment:1")
    found = settings_of(monkeypatch, *file, "-b", "flag:1")
    assert found == {"client_id": "environment", "client_rack": "file", "bootstrap_servers": ["flag:1"]}
    assert settings_of(monkeypatch, *file, "-X", "client.id=pair")["client_id"] == "pair"
    assert SEEN[-1][0].sources["client_rack"].name == "c.properties"


def test_the_file_may_be_named_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("c.toml").write_text('client_id = "mine"')
    monkeypatch.setenv("KAFKA_ACTORS_COMMAND_CONFIG", "c.toml")
    assert settings_of(monkeypatch) == {"client_id": "mine"}


def test_declared_flags_become_options_and_the_others_reach_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings_of(monkeypatch, "--group", "g", "--other", "x") == {"group_id": "g"}
    assert SEEN[-1][1] == {"other": "x"}
    assert settings_of(monkeypatch) == {}, "a flag without a value hides no other source"


def test_the_file_of_a_job_serves_a_connection_and_what_is_of_the_run_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Path("job.toml").write_text('job = "j.py:job"\nworkers = 4\nclient_id = "mine"\nlinger_ms = 5')
    assert settings_of(monkeypatch, "--command-config", "job.toml") == {"client_id": "mine"}
    assert "linger_ms is not an option of a connection and not used" in caplog.text
    assert "workers" not in caplog.text


@pytest.mark.parametrize("name", OF_RUN)
def test_the_environment_of_a_job_serves_a_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), "${env:NOT_THERE}")
    monkeypatch.setenv("KAFKA_ACTORS_CLIENT_ID", "mine")
    assert settings_of(monkeypatch) == {"client_id": "mine"}


def test_an_option_of_another_kind_of_client_is_refused_where_it_is_given_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(of_an_admin, monkeypatch, "-X", "group_id=g") == 2
    assert "kafka-actors: error: group_id: is not an option" in capsys.readouterr().err
    assert SEEN == []


def test_a_wrong_value_of_the_file_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.toml").write_text('ssl_cafile = "ca.pem"')
    assert run(of_an_admin, monkeypatch, "--command-config", "c.toml") == 2
    err = capsys.readouterr().err
    assert err.startswith("kafka-actors: error: ssl_cafile: is given, but security_protocol is ")
    assert err.endswith("(in c.toml)\n")
    assert SEEN == [], "it is checked before the command begins"


def test_an_admin_has_the_options_and_is_closed_and_the_command_returns_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(of_an_admin, monkeypatch, "-b", "a:1", "-o", "json") == 3
    [(admin, form)] = SEEN
    assert (admin.options["bootstrap_servers"], form, admin.closed) == (["a:1"], "json", True)


def test_an_admin_is_closed_where_the_command_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(of_an_admin, monkeypatch, "--fails") == 1
    assert "no such file" in capsys.readouterr().err
    assert SEEN[0][0].closed


def test_a_notice_says_what_keeps_brokers_from_answering_once_that_is_known() -> None:
    admin: Any = Admin({})
    assert connection._waits_for(admin) == "waiting for an answer of a:1, b:2"
    admin.problem = "a:1: connection refused"
    assert connection._waits_for(admin) == "waiting for a broker: a:1: connection refused"
