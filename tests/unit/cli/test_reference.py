"""The page of options is what the declarations say."""

import re
from pathlib import Path

import click
import pytest

from kafka_actors.cli.main import commands, run_command_line
from kafka_actors.cli.reference import JAVA_DEFAULTS, JAVA_NAMES, NOT_IN_JAVA, SECTIONS, options
from kafka_actors.config import ConsumerConfig
from kafka_actors.options import JobConfig, ProducerConfig

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "options.md"


def test_the_committed_page_is_what_the_code_generates(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["config", "options", "--output", "markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(), "the options changed: make docs-options"


def test_the_page_names_the_commands_that_take_a_command_config() -> None:
    taking = {name for name, command in commands.commands.items() if _takes_command_config(command)}
    (sentence,) = re.findall(r"- (The commands that ask a cluster .*?)\n- ", PAGE.read_text(), re.S)
    assert set(re.findall(r"`([a-z][a-z-]*)`", sentence)) == taking


def _takes_command_config(command: click.Command) -> bool:
    if isinstance(command, click.Group):
        return any(map(_takes_command_config, command.commands.values()))
    return any("--command-config" in each.opts for each in command.params)


def test_each_option_is_declared_once_and_has_a_meaning() -> None:
    listed = [option for section in SECTIONS for option in options(section)]
    names = [option.name for option in listed]
    assert len(names) == len(set(names))
    assert {*JobConfig.__struct_fields__, *ProducerConfig.__struct_fields__} <= set(names)
    assert [option.name for option in listed if len(option.meaning.split()) < 2] == []


def test_what_is_said_of_java_is_said_of_options_that_there_are() -> None:
    names = {option.name for section in SECTIONS for option in options(section)}
    assert {*NOT_IN_JAVA, *JAVA_DEFAULTS, *JAVA_NAMES} <= names
    assert not NOT_IN_JAVA & {*JAVA_DEFAULTS, *JAVA_NAMES}


@pytest.mark.parametrize(
    ("name", "kind", "default", "of_a_job", "java", "javas"),
    [
        ("session_timeout_ms", "milliseconds, from 1", "45000", None, "session.timeout.ms", "45000"),
        ("auto_offset_reset", "text", "latest", "earliest", "auto.offset.reset", "latest"),
        (
            "isolation_level",
            "read_uncommitted, read_committed",
            "read_uncommitted",
            None,
            "isolation.level",
            "read_uncommitted",
        ),
        ("check_crcs", "true, false", "true", None, "check.crcs", "true"),
        ("group_instance_id", "text", None, "auto", "group.instance.id", None),
        ("worker_buffer_bytes", "bytes, from 1", "67108864", None, None, None),
    ],
)
def test_an_option_as_it_is_declared(
    name: str, kind: str, default: str | None, of_a_job: str | None, java: str | None, javas: str | None
) -> None:
    section = next(each for each in SECTIONS if each.kind is ConsumerConfig)
    option = next(each for each in options(section) if each.name == name)
    assert (option.type, option.default, option.job_default) == (kind, default, of_a_job)
    assert (option.java, option.java_default) == (java, javas)
