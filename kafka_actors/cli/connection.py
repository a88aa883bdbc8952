"""Commands that ask a cluster something: how they connect, and in which form they answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from .documents import FORMS
from .options import command
from .output import Output
from .run import parse_settings

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin

__all__ = ["admin_command", "note"]

Body = Callable[..., Coroutine[Any, Any, int]]


def admin_command(function: Body) -> Callable[..., None]:
    """Makes a coroutine function `(output, admin, form, **options) -> exit code` the body of a click command.

    The admin connects with the first question: what is wrong with the options is said before that.
    """

    @click.option(
        "-b",
        "--bootstrap-servers",
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        envvar="KAFKA_ACTORS_BOOTSTRAP_SERVERS",
        help="Brokers to find the cluster by.  [default: localhost:9092]",
    )
    @click.option(
        "--command-config",
        metavar="FILE",
        envvar="KAFKA_ACTORS_COMMAND_CONFIG",
        help="Options of the connection, TLS and SASL, in a .properties file as Kafka's own tools take it.",
    )
    @click.option(
        "-X",
        "--command-property",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        help="An option of the connection, such as security_protocol=SSL; wins over the file.",
    )
    @click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMS),
        default="text",
        show_default=True,
        envvar="KAFKA_ACTORS_OUTPUT",
        help="The columns of Kafka's own tools, or a document with all there is to say.",
    )
    @command
    @functools.wraps(function)
    def body(
        output: Output,
        bootstrap_servers: str | None,
        command_config: str | None,
        settings: tuple[str, ...],
        form: str,
        **options: Any,
    ) -> int:
        given = parse_settings(settings, bootstrap_servers=bootstrap_servers)
        return asyncio.run(_run(function, output, _connection(command_config, given), form, options))

    return body


async def _run(
    function: Body, output: Output, connection: dict[str, Any], form: str, options: dict[str, Any]
) -> int:
    from kafka_actors.admin import AsyncAdmin

    admin: AsyncAdmin = AsyncAdmin(config=connection)
    try:
        return await function(output, admin, form, **options)
    finally:
        await admin.close()


def _connection(command_config: str | None, given: dict[str, Any]) -> dict[str, Any]:
    if command_config is None:
        return given
    from .properties import read_client_properties

    return {**read_client_properties(command_config), **given}


def note(text: str) -> None:
    """Something that isn't part of the result: to stderr."""
    click.echo(text, err=True)
