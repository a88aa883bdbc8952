"""`kafka-actors configs`: settings of topics, brokers and groups, with the flags of `kafka-configs.sh`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.errors import UsageError

from .command import EXIT_DONE
from .connection import admin_command, in_turn
from .output import Output, note
from .results import columns, plain, show
from .scopes import names, setting

if TYPE_CHECKING:
    from kafka_actors.admin import AlterConfigOp, AsyncAdmin, ConfigEntry, ConfigResource

__all__ = ["changes_of", "configs", "resources_named"]

TITLES = ("RESOURCE", "NAME", "VALUE", "SOURCE")


@click.group()
def configs() -> None:
    """Settings of topics, brokers and groups: describe, alter."""


def resource_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that name resources; the command gets their values for `resources_named(**named)`."""
    for option in (
        click.option("--group", "groups", metavar="GROUP", multiple=True, help="A consumer group."),
        click.option("--broker-defaults", is_flag=True, help="The defaults of all brokers."),
        click.option("--broker", "brokers", metavar="ID", multiple=True, help="A broker; may be repeated."),
        click.option(
            "-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="A topic; may be repeated."
        ),
    ):
        function = option(function)
    return function


def resources_named(
    topics: Iterable[str], brokers: Iterable[str], broker_defaults: bool, groups: Iterable[str]
) -> list[ConfigResource]:
    """Resources that the options name. Raises `UsageError` if they name none."""
    from kafka_actors.admin import ConfigResource

    found = [ConfigResource("TOPIC", name) for name in names(topics, "--topic")]
    found += [ConfigResource("BROKER", name) for name in names(brokers, "--broker")]
    found += [ConfigResource("BROKER", "")] if broker_defaults else []
    found += [ConfigResource("GROUP", name) for name in names(groups, "--group")]
    if not found:
        raise UsageError("give --topic, --broker, --broker-defaults or --group")
    return found


@configs.command()
@resource_options
@click.option("--all", "everything", is_flag=True, help="Kafka's own defaults, too.")
@admin_command
async def describe(output: Output, admin: AsyncAdmin, form: str, everything: bool, **named: Any) -> int:
    """Describe the settings that differ from Kafka's defaults, and where each value comes from."""
    resources = resources_named(**named)
    found = await admin.describe_configs(resources)
    chosen = {resource: _chosen(found[resource], everything) for resource in resources}
    rows = (
        (resource, entry.name, "(secret)" if entry.is_sensitive else entry.value, entry.source)
        for resource, entries in chosen.items()
        for entry in entries
    )
    document = [
        {**plain(resource), "configs": [plain(entry) for entry in entries]}
        for resource, entries in chosen.items()
    ]
    show(output, form, columns(TITLES, rows), document)
    return EXIT_DONE


def _chosen(entries: Mapping[str, ConfigEntry], everything: bool) -> list[ConfigEntry]:
    return [entry for _, entry in sorted(entries.items()) if everything or not entry.is_default]


@configs.command()
@resource_options
@click.option(
    "--add-config", "added", metavar="NAME=VALUE", multiple=True, help="Set a value; may be repeated."
)
@click.option("--delete-config", "deleted", metavar="NAME", multiple=True, help="Back to the default.")
@click.option("--append-config", "appended", metavar="NAME=VALUE", multiple=True, help="Add to a list.")
@click.option(
    "--subtract-config", "subtracted", metavar="NAME=VALUE", multiple=True, help="Take from a list."
)
@click.option("--validate-only", is_flag=True, help="Only check whether it could be changed.")
@admin_command
async def alter(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    added: tuple[str, ...],
    deleted: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    validate_only: bool,
    **named: Any,
) -> int:
    """Change settings; those that aren't named stay."""
    resources = resources_named(**named)
    changes = changes_of(added, deleted, appended, subtracted)
    done = "could be changed" if validate_only else "changed"
    lines = await in_turn(
        resources,
        lambda resource: admin.incremental_alter_configs({resource: changes}, validate_only=validate_only),
        lambda resource: f"Settings of {resource} {done}.",
    )
    if form != "text":
        for line in lines:
            note(line)
    show(output, form, lines, [{**plain(resource), "altered": not validate_only} for resource in resources])
    return EXIT_DONE


def changes_of(
    added: Iterable[str], deleted: Iterable[str], appended: Iterable[str], subtracted: Iterable[str]
) -> list[AlterConfigOp]:
    """Changes that the options name. Raises `UsageError` if they name none, or a setting twice."""
    from kafka_actors.admin import AlterConfigOp

    found = [AlterConfigOp(*setting(text, "--add-config")) for text in added]
    found += [AlterConfigOp(name, None, "DELETE") for name in names(deleted, "--delete-config")]
    found += [AlterConfigOp(*setting(text, "--append-config"), "APPEND") for text in appended]
    found += [AlterConfigOp(*setting(text, "--subtract-config"), "SUBTRACT") for text in subtracted]
    if not found:
        raise UsageError("give --add-config, --delete-config, --append-config or --subtract-config")
    named = [change.name for change in found]
    if twice := [name for name in named if named.count(name) > 1]:
        raise UsageError(f"{twice[0]} is to be changed in two ways: give it once")
    return found
