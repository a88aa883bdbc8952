"""`AsyncAdmin`: administration of groups, offsets and topics, for asyncio."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kafka_actors.base.arguments import offsets_of
from kafka_actors.base.fork_guard import NotPicklable
from kafka_actors.base.other_clients import ADMIN, says_ours
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.config import ClientConfig, build, resolved
from kafka_actors.errors import KafkaActorsError
from kafka_actors.net import KafkaClient, ListedOffset
from kafka_actors.net.offsets import IsolationLevel
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .acls import AclRequests
from .arguments import (
    bounds_of,
    check_isolation,
    new_topics,
    reset_scope,
    text,
    texts,
    totals_of,
    wanted_times,
)
from .cluster import describe_cluster
from .configs import ConfigRequests
from .groups import GroupRequests
from .machines.acls import creations_of, filters_of
from .machines.configs import alterations_of, resources_of
from .machines.offsets import OffsetTarget
from .offsets import OffsetRequests, Scope
from .requests import CallDeadline, raise_first
from .results import (
    AclBinding,
    AclBindingFilter,
    AlterConfigOp,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    NewPartitions,
    NewTopic,
    OffsetReset,
    PartitionLag,
    TopicDescription,
    TopicListing,
)
from .topics import TopicRequests

if TYPE_CHECKING:
    from kafka_actors.config.typed_options import ConnectionOptions

__all__ = ["AsyncAdmin"]

K = TypeVar("K")
T = TypeVar("T")
Offset = OffsetAndMetadata | int


@timeouts_by_name
class AsyncAdmin(NotPicklable):
    """Groups, topics and offsets of a cluster, with the method names of Java's `Admin`.

        async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
            for group in await admin.list_groups(states=["Stable"]): ...

    Options are those of any connection (`ClientConfig`), as keyword arguments with underscores or in `config={...}`,
    which may be the first argument, with dots or underscores. For one event loop.

    Every call retries temporary errors for at most `timeout_ms` (default `request_timeout_ms`), and raises the
    `KafkaError` that a broker answered, `KafkaTimeoutError`, or `NoBrokersAvailable`. A call for many groups or
    topics deals with all of them, then raises the first error with the others as its notes.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Unpack[ConnectionOptions]) -> None:
        self.config = resolved(build(ClientConfig, config, **options))
        self._client = KafkaClient(self.config)
        self._groups = GroupRequests(self._client)
        self._topics = TopicRequests(self._client)
        self._configs = ConfigRequests(self._client)
        self._acls = AclRequests(self._client)
        self._offsets = OffsetRequests(self._client, self._groups, self._topics)

    async def __aenter__(self) -> Self:
        await self._client.bootstrap()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:
        __getattr__ = says_ours(ADMIN)

    def __repr__(self) -> str:
        return f"<AsyncAdmin of {','.join(self.config.bootstrap_servers)}>"

    async def close(self) -> None:
        """Closes the connections. Closing again changes nothing."""
        await self._client.close()

    def trouble(self) -> str:
        """Text that says why brokers can't be asked, with the last error of each bootstrap server, or broker once one has answered; empty
        where there is nothing to say."""
        return self._client.trouble()

    async def _connected(self, timeout_ms: float | None) -> CallDeadline:
        """Connects at the first call. Returns the deadline of the call, which includes the time to connect."""
        deadline = CallDeadline(self._client, timeout_ms)
        await self._client.bootstrap(timeout_ms=timeout_ms)
        return deadline

    # ------------------------------------------------------------ the cluster

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """Describes the cluster: id, brokers, controller, and if asked for the operations that the principal may do (KIP-430)."""
        deadline = await self._connected(timeout_ms)
        return await describe_cluster(self._client, include_authorized_operations, deadline)

    # ------------------------------------------------------------ groups

    async def list_groups(
        self,
        *,
        states: Collection[str] = (),
        types: Collection[str] = (),
        timeout_ms: float | None = None,
    ) -> list[GroupListing]:
        """Lists all groups by id, or those of the given states or types, in any case of letters. Brokers silently leave out
        groups that the principal may not describe, unless it may describe the cluster.

        Raises `UnsupportedVersionError` for `states` where brokers don't report them (before Kafka 2.6), and the error
        of any broker that didn't answer, because its groups would be missing.
        """
        wanted = texts(states, "states"), texts(types, "types")
        return await self._groups.listed(*wanted, await self._connected(timeout_ms))

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupDescription]:
        """Describes groups of the classic and of the newer protocol (KIP-848): state and members.

        Raises `GroupIdNotFoundError` for a group that doesn't exist.
        """
        wanted = texts(group_ids, "group_ids")
        return _all(await self._groups.describe(wanted, await self._connected(timeout_ms)))

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Deletes groups with all their committed offsets. Raises `NonEmptyGroupError` for one that has members,
        `GroupIdNotFoundError` for one that doesn't exist."""
        wanted = texts(group_ids, "group_ids")
        _all(await self._groups.delete(wanted, await self._connected(timeout_ms)))

    # ------------------------------------------------------------ a group's offsets

    async def list_consumer_group_offsets(
        self, group_id: str, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Lists the offsets that a group has committed; none for a group that doesn't exist."""
        text(group_id, "group_id")
        return await self._groups.committed(group_id, await self._connected(timeout_ms))

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits offsets for a group without members, which need not exist. Raises `NonEmptyGroupError` if it has members."""
        text(group_id, "group_id")
        made = offsets_of(offsets)
        deadline = await self._connected(timeout_ms)
        if made:
            await self._groups.commit(group_id, made, deadline)

    async def reset_offsets(
        self,
        group_id: str,
        target: OffsetTarget,
        topics: Scope = None,
        *,
        execute: bool = False,
        timeout_ms: float | None = None,
    ) -> list[OffsetReset]:
        """Resets the offsets from which a group without members goes on. Without `execute` it only returns the plan.

            await admin.reset_offsets("g", OffsetTarget.earliest(), {"orders": None, "clicks": [0, 1]}, execute=True)

        `topics` is None for all that the group has committed for. Raises `NonEmptyGroupError` if it has members,
        `UnknownTopicOrPartitionError`, and `UsageError` where there is nothing to reset or to shift.
        """
        text(group_id, "group_id")
        scope = reset_scope(target, topics)
        deadline = await self._connected(timeout_ms)
        return await self._offsets.reset(group_id, target, scope, execute, deadline)

    async def lag(
        self,
        group_id: str,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> list[PartitionLag]:
        """Lists the lag of a group in each partition that it has committed for or that a member is assigned to.

        Under read_committed a log ends at its last stable offset. Raises `GroupIdNotFoundError`.
        """
        text(group_id, "group_id")
        check_isolation(isolation_level)
        deadline = await self._connected(timeout_ms)
        group = _all(await self._groups.describe([group_id], deadline))[group_id]
        return await self._offsets.lag(group, isolation_level, deadline)

    # ------------------------------------------------------------ topics

    async def list_topics(
        self, *, exclude_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """Lists the topics that the principal may describe, by name."""
        deadline = await self._connected(timeout_ms)
        return await self._topics.listed(exclude_internal, deadline)

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription]:
        """Describes topics with their partitions, by name; all of them by default. Raises `UnknownTopicOrPartitionError`."""
        wanted = None if names is None else texts(names, "names")
        return _all(await self._topics.describe(wanted, await self._connected(timeout_ms)))

    async def topic_configs(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, dict[str, str | None]]:
        """Lists the settings of each topic that are not Kafka's defaults: its own and the brokers'. Secrets are None."""
        codes = resources_of(ConfigResource("TOPIC", name) for name in texts(names, "names"))
        found = _all(await self._configs.describe(codes, False, await self._connected(timeout_ms)))
        return {
            topic.name: {entry.name: entry.value for entry in entries.values() if not entry.is_default}
            for topic, entries in found.items()
        }

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Creates topics, or with `validate_only` only checks whether they could be created. Raises
        `TopicAlreadyExistsError`, `InvalidReplicationFactorError`, and other errors of the controller.

        It may take a moment until all brokers know a new topic.
        """
        made = new_topics(topics)
        _all(await self._topics.create(made, validate_only, await self._connected(timeout_ms)))

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes topics with all their records. Raises `UnknownTopicOrPartitionError`, and `TopicDeletionDisabledError`
        where brokers don't allow it. It may take a moment until all brokers have forgotten a topic."""
        wanted = texts(names, "names")
        _all(await self._topics.delete(wanted, await self._connected(timeout_ms)))

    async def create_partitions(
        self,
        partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Adds partitions to topics until each has as many as given: `{"orders": 12}`. Records stay where they are, so those
        of a key may be in another partition from then on. Raises `InvalidPartitionsError` where it would be no increase."""
        totals = totals_of(partitions)
        deadline = await self._connected(timeout_ms)
        _all(await self._topics.create_partitions(totals, validate_only, deadline))

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records before an offset in each partition, `LATEST` for all that are committed to the log (its high
        watermark). Returns the first offset that each log then has. Raises `OffsetOutOfRangeError` for one beyond the
        high watermark, `UnknownTopicOrPartitionError`, and `PolicyViolationError` for a compacted topic."""
        bounds = bounds_of(offsets)
        return _all(await self._offsets.delete_records(bounds, await self._connected(timeout_ms)))

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Lists the first offset at or after a time (milliseconds since 1970), by partition; -1 if all records are older.

        `kafka_actors.admin` has special times: `EARLIEST` and `LATEST`, the ends of the log, and `MAX_TIMESTAMP`,
        the youngest record (from Kafka 3.0 on). Raises `UnknownTopicOrPartitionError`.
        """
        wanted = wanted_times(partitions)
        check_isolation(isolation_level)
        deadline = await self._connected(timeout_ms)
        return await self._offsets.listed(wanted, isolation_level, deadline)

    # ------------------------------------------------------------ settings

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Describes all settings of resources, by name; with `include_synonyms` also the values that others override.

        Raises `UnknownTopicOrPartitionError`, and `UsageError` for a broker that isn't there.
        """
        codes = resources_of(resources)
        deadline = await self._connected(timeout_ms)
        return _all(await self._configs.describe(codes, include_synonyms, deadline))

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Changes settings of resources; those that aren't named stay (KIP-339, Kafka 2.3).

            orders = ConfigResource("TOPIC", "orders")
            await admin.incremental_alter_configs({orders: [AlterConfigOp("retention.ms", "86400000")]})

        Raises `InvalidConfigError` for a name or value that brokers don't take, `UnknownTopicOrPartitionError`.
        """
        made = alterations_of(changes)
        _all(await self._configs.alter(made, validate_only, await self._connected(timeout_ms)))

    # ------------------------------------------------------------ ACLs

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Lists the ACLs that a filter takes, all of them by default. Raises `SecurityDisabledError` where brokers have no authorizer."""
        [wanted] = filters_of([AclBindingFilter() if acl_filter is None else acl_filter]).values()
        return await self._acls.describe(wanted, await self._connected(timeout_ms))

    async def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: float | None = None) -> None:
        """Creates ACLs. One that is there already stays. Raises `SecurityDisabledError` where brokers have no authorizer."""
        made = creations_of(acls)
        _all(await self._acls.create(made, await self._connected(timeout_ms)))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Deletes the ACLs that any of the filters takes, and returns them. A filter without a field takes all."""
        wanted = filters_of(filters)
        deleted = _all(await self._acls.delete(wanted, await self._connected(timeout_ms)))
        return sorted({acl for acls in deleted.values() for acl in acls})


def _all(answers: Mapping[K, T | KafkaActorsError]) -> dict[K, T]:
    raise_first(answer for answer in answers.values() if isinstance(answer, KafkaActorsError))
    return {key: answer for key, answer in answers.items() if not isinstance(answer, KafkaActorsError)}
