"""Conversion of settings' changes into requests, and of brokers' responses into settings; which broker is asked about a resource.

Theory of operation. Changes are increments (IncrementalAlterConfigs, KIP-339): a setting that is not named stays as it is. All of
them are checked before anything is sent, so a mistake that is found here leaves every resource unchanged.

- Settings of one broker, and the levels of its loggers, are that broker's: it alone is asked about them, and there is no answer
  while it is down. About topics, groups, client metrics and the defaults of all brokers any broker is asked. Java's
  `KafkaAdminClient` divides them in the same way (`nodeFor`).
- DELETE takes a dynamic value away; the setting then has the next one in the order of its `synonyms`, such as that of the broker's
  file. APPEND and SUBTRACT change lists.
- Values are text in both directions, and the broker knows their types. Secrets come back as None.

The order of brokers' answers is not relied on: each has the type and name of its resource. Which settings a
resource has, and which are read-only, only the broker knows, so its refusal comes back with its own words and
advice (`advice`).
"""

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
    """Checks a resource and returns the code of its type. Names of brokers are checked, being ids, or "" for the defaults of all;
    whether there is a topic or group of a name only the cluster knows."""
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
    """Converts one change. Whether the setting exists, and takes the value, only the broker knows."""
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
