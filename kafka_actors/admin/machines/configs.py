"""Conversion of settings' changes into requests, and of brokers' responses into settings; which broker is asked about a resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_actors.admin.results import AlterConfigOp, ConfigEntry, ConfigResource, ConfigSynonym
from kafka_actors.errors import UsageError, kind_of
from kafka_actors.protocol.messages.describe_configs import DescribeConfigsResourceResult
from kafka_actors.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

from .codes import CONFIG_OPERATIONS, CONFIG_RESOURCES, CONFIG_SOURCES, CONFIG_TYPES, code_of, name_of

__all__ = ["alterations_of", "broker_of", "config_entry", "resources_of"]


def resources_of(resources: Iterable[ConfigResource]) -> dict[ConfigResource, int]:
    """Resources with the codes of their types. Raises `TypeError` and `UsageError` for what can't be one."""
    if isinstance(resources, ConfigResource | str):
        raise TypeError(f"resources is {kind_of(resources)}: give a list of ConfigResource(type, name)")
    return {resource: _code(resource) for resource in resources}


def _code(resource: ConfigResource) -> int:
    if not isinstance(resource, ConfigResource):
        raise TypeError(f"{resource!r}, {kind_of(resource)}, is no resource: give ConfigResource(type, name)")
    code = code_of(CONFIG_RESOURCES, resource.type, "type of a ConfigResource")
    if not isinstance(resource.name, str):
        raise TypeError(
            f"name of a ConfigResource is {resource.name!r}, {kind_of(resource.name)}: names are str"
        )
    of_all_brokers = resource.type == "BROKER" and not resource.name
    if resource.type in ("BROKER", "BROKER_LOGGER") and not of_all_brokers and not resource.name.isdecimal():
        raise UsageError(
            f"{resource} is no broker: give its id, such as ConfigResource({resource.type!r}, '1'), "
            "or for the defaults of all brokers ConfigResource('BROKER', '')"
        )
    return code


def alterations_of(
    changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
) -> dict[ConfigResource, AlterConfigsResource]:
    """Converts changes of settings. Raises `TypeError` and `UsageError` for what can't be one."""
    if not isinstance(changes, Mapping):
        raise TypeError(f"changes is {changes!r}, {kind_of(changes)}: give a dict by ConfigResource")
    return {
        resource: AlterConfigsResource(_code(resource), resource.name, [_alteration(op) for op in operations])
        for resource, operations in changes.items()
    }


def _alteration(change: AlterConfigOp) -> AlterableConfig:
    if not isinstance(change, AlterConfigOp):
        raise TypeError(f"{change!r}, {kind_of(change)}, is no change: give AlterConfigOp(name, value)")
    operation = code_of(CONFIG_OPERATIONS, change.op, f"op of {change.name!r}")
    if change.op == "DELETE":
        if change.value is not None:
            raise UsageError(f"{change.name!r} has a value, which op='DELETE' doesn't take")
    elif not isinstance(change.value, str):
        raise UsageError(
            f"the value of {change.name!r} is {change.value!r}, {kind_of(change.value)}: settings are str; "
            "op='DELETE' gives a setting its default again"
        )
    return AlterableConfig(change.name, operation, change.value)


def broker_of(resource: ConfigResource) -> int | None:
    """Id of the broker that alone knows about a resource; None for one that any broker knows."""
    of_one = resource.type in ("BROKER", "BROKER_LOGGER") and resource.name
    return int(resource.name) if of_one else None


def config_entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    """Setting in a DescribeConfigs response."""
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=name_of(CONFIG_SOURCES, config.config_source),
        type=name_of(CONFIG_TYPES, config.config_type),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(each.name, each.value, name_of(CONFIG_SOURCES, each.source))
            for each in config.synonyms
        ),
    )
