"""Flags whose help is what the declarations of options say."""

from __future__ import annotations

import pytest

from kafka_actors.cli.job_options import RunConfig, meanings
from kafka_actors.cli.main import run_command_line
from kafka_actors.options import ClientConfig, ConsumerConfig


def _help(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert run_command_line([*command, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_help_of_run_is_what_the_declarations_say(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _help(capsys, "run")
    for kind, name in (
        (RunConfig, "workers"),
        (RunConfig, "status"),
        (RunConfig, "otlp"),
        (RunConfig, "prometheus"),
        (RunConfig, "until"),
        (ConsumerConfig, "group_id"),
        (ClientConfig, "bootstrap_servers"),
    ):
        assert meanings(kind)[name].replace("`", "") in shown


def test_a_command_that_asks_a_cluster_says_which_brokers_it_asks_by_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = _help(capsys, "topics", "list")
    text = meanings(ClientConfig)["bootstrap_servers"].replace("`", "")
    assert f"{text} [default: localhost:9092]" in shown
    assert "Without Kafka's own topics." in shown
