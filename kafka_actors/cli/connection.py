"""Frame of the commands that talk to a cluster: options of the connection, and for most an admin client and the form of its answer."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from kafka_actors.config import build
from kafka_actors.errors import KafkaError
from kafka_actors.options import ClientConfig

from .command import command
from .job_options import OF_RUN, DeclaredOption, RunConfig, other_variables
from .option_sources import (
    PREFIX,
    Layer,
    OptionValues,
    from_environment,
    from_file,
    from_flags,
    layered,
    read_config_file,
)
from .output import Output, note, slow_notice
from .results import form_option

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin

__all__ = ["admin_command", "client_command", "in_turn"]

T = TypeVar("T")
AdminBody = Callable[..., Coroutine[Any, Any, int]]
ClientBody = Callable[..., int]


def client_command(kind: type[ClientConfig], *declared: str) -> Callable[[ClientBody], Callable[..., None]]:
    """Makes a function `(output, settings, **options) -> exit code` the body of a click command with the options of a
    connection. `settings`: the options of a client, declared by `kind`, from the flags, the environment and the file.

    `declared`: names of the command's own flags that set an option of `kind`; the function doesn't get them.
    """

    def decorate(function: ClientBody) -> Callable[..., None]:
        @click.option(
            "-b",
            "--bootstrap-servers",
            "--bootstrap-server",
            metavar="HOST:PORT,…",
            cls=DeclaredOption,
            kind=ClientConfig,
            more="  [default: localhost:9092]",
        )
        @click.option(
            "--command-config",
            metavar="FILE",
            envvar="KAFKA_ACTORS_COMMAND_CONFIG",
            help="Options of the connection, TLS and SASL: a .properties file as Kafka's own tools take it, or TOML.",
        )
        @click.option(
            "-X",
            "--command-property",
            "pairs",
            metavar="NAME=VALUE",
            multiple=True,
            help="An option of the connection, such as security_protocol=SSL; wins over KAFKA_ACTORS_<OPTION> and the file.",
        )
        @command
        @functools.wraps(function)
        def body(
            output: Output,
            bootstrap_servers: str | None,
            command_config: str | None,
            pairs: tuple[str, ...],
            **options: Any,
        ) -> int:
            declared_options = {name: options.pop(name) for name in declared}
            flags = from_flags(kind, pairs, bootstrap_servers=bootstrap_servers, **declared_options)
            settings = layered(kind, flags, *_around(kind, command_config))
            return function(output, settings, **options)

        return body

    return decorate


def admin_command(function: AdminBody) -> Callable[..., None]:
    """Makes a coroutine function `(output, admin, form, **options) -> exit code` the body of a click command.

    The admin connects with its first request, so errors in the options come before that.
    """

    @functools.wraps(function)
    def body(output: Output, settings: OptionValues, form: str, **options: Any) -> int:
        return asyncio.run(_run(function, output, settings, form, options))

    with_form = form_option("The columns of Kafka's own tools, or a document with all fields.")
    return with_form(client_command(ClientConfig)(body))


async def _run(
    function: AdminBody, output: Output, settings: OptionValues, form: str, options: dict[str, Any]
) -> int:
    from kafka_actors.admin import AsyncAdmin

    with settings.named():
        config = build(ClientConfig, settings.options)
        admin: AsyncAdmin = AsyncAdmin(config=msgspec.structs.asdict(config))
    try:
        with slow_notice(note, lambda: _waits_for(admin)):
            return await function(output, admin, form, **options)
    finally:
        await admin.close()


async def in_turn(
    items: Iterable[T], change: Callable[[T], Coroutine[Any, Any, object]], said: Callable[[T], str]
) -> list[str]:
    """Changes one item after the other, and returns what is said of each. Where a broker refuses some, the others are changed all the same, notes say which they are, and the
    first refusal is raised; where no broker answers, no further one is tried, and the refusals before that are notes as well."""
    changed: list[T] = []
    refused: list[KafkaError] = []
    try:
        for item in items:
            try:
                await change(item)
            except KafkaError as error:
                refused.append(error)
            else:
                changed.append(item)
        if refused:
            raise refused[0]
    except BaseException as error:
        for each in changed:
            note(said(each))
        for another in refused:
            if another is not error:
                note(str(another))
        raise
    return [said(item) for item in changed]


def _waits_for(admin: AsyncAdmin) -> str:
    servers = ", ".join(admin.config.bootstrap_servers)
    trouble = admin.trouble()
    return f"waiting for a broker: {trouble}" if trouble else f"waiting for an answer of {servers}"


def _around(kind: type[ClientConfig], command_config: str | None) -> tuple[Layer, ...]:
    """Layers below the flags: the environment, and the file."""
    of_run = {PREFIX + name.upper() for name in OF_RUN}
    environment = from_environment(kind, os.environ, other_variables() | of_run)
    if command_config is None:
        return (environment,)
    in_file = read_config_file("--command-config", command_config, RunConfig.__struct_fields__)
    of_connection = {name: value for name, value in in_file.items() if name not in OF_RUN}
    return environment, from_file(kind, of_connection, command_config, strict=False)
