"""The commands in the pages' shell blocks: whether what they name is there. Nothing is run."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from kafka_actors.cli.main import commands

from .blocks import ROOT, Block

SHELLS = {"sh", "bash", "shell", "console"}
OPERATORS = "|&;<>()"
ASSIGNMENT = re.compile(r"\w+=")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
EXTRAS = re.compile(r"\bkafka-actors\[([\w, ]+)\]")


def problems_of(block: Block) -> list[str]:
    """Names in a shell block that nobody has: subcommands and options of `kafka-actors`, targets of make, extras."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra.strip() for names in EXTRAS.findall(block.code) for extra in names.split(",")}
    found = [f"there is no extra {extra!r}" for extra in sorted(asked - known.keys())]
    return found + [problem for words in commands_in(block.code) if (problem := _problem(words))]


def commands_in(code: str) -> Iterator[list[str]]:
    """The words of each call of `kafka-actors` and of `make`; without variables before it, comments and prompts."""
    for line in code.replace("\\\n", " ").splitlines():
        if not re.search(r"\b(kafka-actors|make)\b", line):
            continue  # the lines of a file, maybe, with quotes of their own
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=OPERATORS)
        lexer.whitespace_split = True
        words: list[str] = []
        for token in [*lexer, ";"]:
            if token.strip(OPERATORS):
                words.append(token)
                continue
            while words and ASSIGNMENT.match(words[0]):
                words.pop(0)
            if words and Path(words[0]).name in ("kafka-actors", "make"):
                yield words
            words = []


def _problem(words: list[str]) -> str | None:
    if Path(words[0]).name == "make":
        targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
        asked = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        return next((f"make has no target {word!r}" for word in asked if word not in targets), None)
    try:
        _parse(commands, None, words[1:])
    except click.UsageError as error:
        return f"{' '.join(words)}: {error.format_message()}"
    return None


def _parse(command: click.Command, parent: click.Context | None, words: list[str]) -> None:
    """Parses words as click does, without converting or calling anything."""
    context = click.Context(command, info_name=command.name, parent=parent)
    _, rest, _ = command.make_parser(context).parse_args(list(words))
    if isinstance(command, click.Group) and rest:
        below = command.get_command(context, rest[0])
        if below is None:
            raise click.UsageError(f"no such command {rest[0]!r}")
        _parse(below, context, rest[1:])
