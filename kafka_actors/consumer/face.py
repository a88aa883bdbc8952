"""What `Consumer` and `AsyncConsumer` have in common: what neither has to wait for."""

from __future__ import annotations

from kafka_actors.protocol.types import TopicPartition

from .session import Session


class ConsumerFace:
    """A consumer as it can be read at any time."""

    _session: Session

    def __repr__(self) -> str:
        config = self._session.config
        servers = ",".join(config.bootstrap_servers)
        return f"<{type(self).__name__} group={config.group_id!r} of {servers}>"

    def subscription(self) -> set[str]:
        """The topics subscribed to by name."""
        return set(self._session.subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions read now, from the group or by hand."""
        return set(self._session.assignment())
