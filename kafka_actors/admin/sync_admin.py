"""`Admin`: the blocking form of `AsyncAdmin`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.base.io_thread import IoThread
from kafka_actors.base.other_clients import ADMIN, says_ours
from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.errors import UsageError
from kafka_actors.net import ListedOffset
from kafka_actors.net.offsets import IsolationLevel
from kafka_actors.types import OffsetAndMetadata, TopicPartition

from .async_admin import AsyncAdmin, Offset
from .machines.offsets import OffsetTarget
from .offsets import Scope
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

if TYPE_CHECKING:
    from kafka_actors.config.typed_options import ConnectionOptions

__all__ = ["Admin"]

T = TypeVar("T")


@timeouts_by_name
class Admin(ForkGuard):
    """`AsyncAdmin` without coroutines: the same options, calls, results and errors; see there. For any thread.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            behind = sum(row.lag or 0 for row in admin.lag("scorer"))

    Connections live in a thread of their own, which ends with `close`. Not for use after a fork, nor pickled.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Unpack[ConnectionOptions]) -> None:
        super().__init__()
        self._admin = AsyncAdmin(config=config, **options)
        self._io = IoThread("kafka-admin")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:
        __getattr__ = says_ours(ADMIN)

    def __repr__(self) -> str:
        return f"<Admin of {','.join(self._admin.config.bootstrap_servers)}>"

    def __del__(self) -> None:
        io = getattr(self, "_io", None)  # not set where an option was wrong
        if io is not None and io.alive:
            warnings.warn(f"{self!r} was never closed: its thread still runs", ResourceWarning, stacklevel=2)

    def close(self) -> None:
        """Blocking form of `AsyncAdmin.close`."""
        if not self._io.loop.is_closed():  # after a fork its thread is not alive, and the loop not closed
            self._check_process()
            try:
                with suppress(UsageError):  # another thread has closed it
                    self._call(self._admin.close())
            finally:
                self._io.stop()

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """Blocking form of `AsyncAdmin.describe_cluster`."""
        return self._call(
            self._admin.describe_cluster(
                include_authorized_operations=include_authorized_operations, timeout_ms=timeout_ms
            )
        )

    def list_groups(
        self,
        *,
        states: Collection[str] = (),
        types: Collection[str] = (),
        timeout_ms: float | None = None,
    ) -> list[GroupListing]:
        """Blocking form of `AsyncAdmin.list_groups`."""
        return self._call(self._admin.list_groups(states=states, types=types, timeout_ms=timeout_ms))

    def describe_consumer_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupDescription]:
        """Blocking form of `AsyncAdmin.describe_consumer_groups`."""
        return self._call(self._admin.describe_consumer_groups(group_ids, timeout_ms=timeout_ms))

    def delete_consumer_groups(self, group_ids: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Blocking form of `AsyncAdmin.delete_consumer_groups`."""
        self._call(self._admin.delete_consumer_groups(group_ids, timeout_ms=timeout_ms))

    def list_consumer_group_offsets(
        self, group_id: str, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Blocking form of `AsyncAdmin.list_consumer_group_offsets`."""
        return self._call(self._admin.list_consumer_group_offsets(group_id, timeout_ms=timeout_ms))

    def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Blocking form of `AsyncAdmin.alter_consumer_group_offsets`."""
        self._call(self._admin.alter_consumer_group_offsets(group_id, offsets, timeout_ms=timeout_ms))

    def reset_offsets(
        self,
        group_id: str,
        target: OffsetTarget,
        topics: Scope = None,
        *,
        execute: bool = False,
        timeout_ms: float | None = None,
    ) -> list[OffsetReset]:
        """Blocking form of `AsyncAdmin.reset_offsets`."""
        return self._call(
            self._admin.reset_offsets(group_id, target, topics, execute=execute, timeout_ms=timeout_ms)
        )

    def lag(
        self,
        group_id: str,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> list[PartitionLag]:
        """Blocking form of `AsyncAdmin.lag`."""
        return self._call(self._admin.lag(group_id, isolation_level=isolation_level, timeout_ms=timeout_ms))

    def list_topics(
        self, *, exclude_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """Blocking form of `AsyncAdmin.list_topics`."""
        return self._call(self._admin.list_topics(exclude_internal=exclude_internal, timeout_ms=timeout_ms))

    def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription]:
        """Blocking form of `AsyncAdmin.describe_topics`."""
        return self._call(self._admin.describe_topics(names, timeout_ms=timeout_ms))

    def topic_configs(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, dict[str, str | None]]:
        """Blocking form of `AsyncAdmin.topic_configs`."""
        return self._call(self._admin.topic_configs(names, timeout_ms=timeout_ms))

    def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Blocking form of `AsyncAdmin.create_topics`."""
        self._call(self._admin.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms))

    def delete_topics(self, names: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Blocking form of `AsyncAdmin.delete_topics`."""
        self._call(self._admin.delete_topics(names, timeout_ms=timeout_ms))

    def create_partitions(
        self,
        partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Blocking form of `AsyncAdmin.create_partitions`."""
        self._call(
            self._admin.create_partitions(partitions, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Blocking form of `AsyncAdmin.delete_records`."""
        return self._call(self._admin.delete_records(offsets, timeout_ms=timeout_ms))

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Blocking form of `AsyncAdmin.list_offsets`."""
        return self._call(
            self._admin.list_offsets(partitions, isolation_level=isolation_level, timeout_ms=timeout_ms)
        )

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Blocking form of `AsyncAdmin.describe_configs`."""
        return self._call(
            self._admin.describe_configs(resources, include_synonyms=include_synonyms, timeout_ms=timeout_ms)
        )

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Blocking form of `AsyncAdmin.incremental_alter_configs`."""
        self._call(
            self._admin.incremental_alter_configs(changes, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Blocking form of `AsyncAdmin.describe_acls`."""
        return self._call(self._admin.describe_acls(acl_filter, timeout_ms=timeout_ms))

    def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: float | None = None) -> None:
        """Blocking form of `AsyncAdmin.create_acls`."""
        self._call(self._admin.create_acls(acls, timeout_ms=timeout_ms))

    def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Blocking form of `AsyncAdmin.delete_acls`."""
        return self._call(self._admin.delete_acls(filters, timeout_ms=timeout_ms))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_open()
        except UsageError:
            work.close()
            raise
        try:
            future = self._io.submit(work)
            try:
                return future.result()
            finally:
                future.cancel()  # has an effect only where the wait was interrupted
        except (CancelledError, RuntimeError):
            self._check_open()  # another thread has closed it
            raise

    def _check_open(self) -> None:
        self._check_process()  # its thread isn't there after a fork: no answer would ever come
        if not self._io.takes_work:
            raise UsageError("this Admin is closed")
