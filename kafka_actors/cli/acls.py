"""`kafka-actors acls`: lists, adds and removes ACLs, with the flags of `kafka-acls.sh`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from kafka_actors.errors import UsageError

from .command import EXIT_DONE
from .connection import admin_command, in_turn
from .output import Output
from .results import columns, show
from .scopes import names

if TYPE_CHECKING:
    from kafka_actors.admin import AclBinding, AclBindingFilter, AsyncAdmin

__all__ = ["AclChoice", "acls"]

TITLES = ("RESOURCE-TYPE", "RESOURCE-NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
CLUSTER_NAME = "kafka-cluster"
FILTER_PATTERNS = ["literal", "prefixed", "match", "any"], "literal where a resource is named, else any"


class AclChoice(Struct, frozen=True):
    """Values of the options that name resources, principals and operations."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    cluster: bool = False
    pattern_type: str | None = None
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()

    def resources(self) -> list[tuple[str, str]]:
        """Types and names of the resources."""
        found = [("TOPIC", name) for name in names(self.topics, "--topic")]
        found += [("GROUP", name) for name in names(self.groups, "--group")]
        found += [("TRANSACTIONAL_ID", name) for name in self.transactional_ids]
        return [*found, ("CLUSTER", CLUSTER_NAME)] if self.cluster else found

    def principals(self) -> list[tuple[str, str]]:
        """Principals, with ALLOW or DENY."""
        return [(name, "ALLOW") for name in self.allowed] + [(name, "DENY") for name in self.denied]

    def bindings(self) -> list[AclBinding]:
        """ACLs to be added: one for each resource, principal, operation and host. Raises `UsageError` where one is missing."""
        from kafka_actors.admin import AclBinding

        for chosen, flags in (
            (self.resources(), "--topic, --group, --transactional-id or --cluster"),
            (self.principals(), "--allow-principal or --deny-principal"),
            (self.operations, "--operation"),
        ):
            if not chosen:
                raise UsageError(f"give {flags}")
        pattern = (self.pattern_type or "literal").upper()
        hosts = self.hosts or ("*",)
        return [
            AclBinding(kind, name, principal, operation.upper(), permission, pattern, host)
            for (kind, name), (principal, permission), operation, host in product(
                self.resources(), self.principals(), self.operations, hosts
            )
        ]

    def filters(self) -> list[AclBindingFilter]:
        """Filters that take the ACLs of these resources, principals, operations and hosts; of all, where none is named. The
        pattern of a resource that is named is literal by default, as `kafka-acls.sh` has it."""
        from kafka_actors.admin import AclBindingFilter

        resources = self.resources()
        pattern = self.pattern_type or ("literal" if resources else "any")
        nothing: list[tuple[str, str] | tuple[None, None]] = [(None, None)]
        return [
            AclBindingFilter(
                kind,
                name,
                principal,
                None if operation is None else operation.upper(),
                permission,
                None if pattern == "any" else pattern.upper(),
                host,
            )
            for (kind, name), (principal, permission), operation, host in product(
                resources or nothing,
                self.principals() or nothing,
                _or_any(self.operations),
                _or_any(self.hosts),
            )
        ]


def _or_any(values: Sequence[str]) -> Sequence[str | None]:
    return values or [None]


def acl_options(patterns: Sequence[str], default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options that name ACLs; the command gets their values as `AclChoice(**options)`. `default` says in the help which pattern
    type is taken where none is given."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(
            [
                click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="A topic."),
                click.option(
                    "-g", "--group", "groups", metavar="GROUP", multiple=True, help="A consumer group."
                ),
                click.option("--transactional-id", "transactional_ids", metavar="ID", multiple=True),
                click.option("--cluster", is_flag=True, help="The cluster itself."),
                click.option(
                    "--resource-pattern-type",
                    "pattern_type",
                    type=click.Choice(patterns, case_sensitive=False),
                    show_default=default,
                    help="How names are meant: prefixed is all that begin so.",
                ),
                click.option("--allow-principal", "allowed", metavar="User:NAME", multiple=True),
                click.option("--deny-principal", "denied", metavar="User:NAME", multiple=True),
                click.option("--host", "hosts", metavar="IP", multiple=True, help="A client's address."),
                click.option(
                    "--operation", "operations", metavar="OPERATION", multiple=True, help="read, write, …"
                ),
            ]
        ):
            function = option(function)
        return function

    return add


@click.group()
def acls() -> None:
    """ACLs: list, add, remove."""


@acls.command("list")
@acl_options(*FILTER_PATTERNS)
@admin_command
async def list_acls(output: Output, admin: AsyncAdmin, form: str, **options: Any) -> int:
    """List the ACLs that match, all of them by default. With --resource-pattern-type match also those of prefixes and "*"."""
    found: set[AclBinding] = set()
    for each in AclChoice(**options).filters():
        found.update(await admin.describe_acls(each))
    _show(output, form, found)
    return EXIT_DONE


@acls.command("add")
@acl_options(["literal", "prefixed"], "literal")
@admin_command
async def add_acls(output: Output, admin: AsyncAdmin, form: str, **options: Any) -> int:
    """Add an ACL for each resource, principal and operation."""
    from kafka_actors.admin.machines.acls import creations_of

    made = list(creations_of(AclChoice(**options).bindings()))  # all are checked before the first is added
    await in_turn(made, lambda acl: admin.create_acls([acl]), lambda acl: f"Added {acl}.")
    _show(output, form, made)
    return EXIT_DONE


@acls.command("remove")
@acl_options(*FILTER_PATTERNS)
@click.option("--all", "everything", is_flag=True, help="All ACLs of the cluster.")
@admin_command
async def remove_acls(output: Output, admin: AsyncAdmin, form: str, everything: bool, **options: Any) -> int:
    """Remove the ACLs that match, without asking, and print them.

    Without --operation those of all operations are removed, without --host those of all hosts.
    """
    choice = AclChoice(**options)
    if everything == (choice != AclChoice()):
        raise UsageError(
            "give either --all, or which ACLs: --topic, --group, --allow-principal, --operation, …"
        )
    from kafka_actors.admin.machines.acls import filters_of

    removed: dict[AclBindingFilter, list[AclBinding]] = {}

    async def remove(each: AclBindingFilter) -> None:
        removed[each] = await admin.delete_acls([each])

    await in_turn(
        filters_of(choice.filters()),
        remove,
        lambda each: f"Removed {'; '.join(map(str, removed[each])) or 'nothing'}.",
    )
    _show(output, form, {acl for found in removed.values() for acl in found})
    return EXIT_DONE


def _show(output: Output, form: str, found: Iterable[AclBinding]) -> None:
    listed = sorted(found)
    rows = (
        (
            a.resource_type,
            a.resource_name,
            a.pattern_type,
            a.principal,
            a.host,
            a.operation,
            a.permission_type,
        )
        for a in listed
    )
    show(output, form, columns(TITLES, rows), listed)
