"""Frame of the commands that ask a cluster: options of the connection, the admin client, and the form of the answer."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kafka_actors.config import build
from kafka_actors.options import ClientConfig

from .command import command
from .job_options import OF_RUN, DeclaredOption, RunConfig, other_variables
from .option_sources import (
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

__all__ = ["admin_command"]

Body = Callable[..., Coroutine[Any, Any, int]]


def admin_command(function: Body) -> Callable[..., None]:
    """Makes a coroutine function `(output, admin, form, **options) -> exit code` the body of a click command.

    The admin connects with its first request, so errors in the options come before that.
    """

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
    @form_option("The columns of Kafka's own tools, or a document with all fields.")
    @command
    @functools.wraps(function)
    def body(
        output: Output,
        bootstrap_servers: str | None,
        command_config: str | None,
        pairs: tuple[str, ...],
        form: str,
        **options: Any,
    ) -> int:
        flags = from_flags(ClientConfig, pairs, bootstrap_servers=bootstrap_servers)
        settings = layered(ClientConfig, flags, *_around(command_config))
        return asyncio.run(_run(function, output, settings, form, options))

    return body


async def _run(
    function: Body, output: Output, settings: OptionValues, form: str, options: dict[str, Any]
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


def _waits_for(admin: AsyncAdmin) -> str:
    servers = ", ".join(admin.config.bootstrap_servers)
    trouble = admin.trouble()
    return f"waiting for a broker: {trouble}" if trouble else f"waiting for an answer of {servers}"


def _around(command_config: str | None) -> tuple[Layer, ...]:
    """Layers below the flags: the environment, and the file."""
    environment = from_environment(ClientConfig, os.environ, other_variables())
    if command_config is None:
        return (environment,)
    in_file = read_config_file("--command-config", command_config, RunConfig.__struct_fields__)
    of_connection = {name: value for name, value in in_file.items() if name not in OF_RUN}
    return environment, from_file(ClientConfig, of_connection, command_config, strict=False)
