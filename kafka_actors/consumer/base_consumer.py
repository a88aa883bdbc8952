"""What `Consumer` and `AsyncConsumer` have in common: what neither has to wait for."""

from __future__ import annotations

import warnings

from kafka_actors.types import TopicPartition

from .consumer_session import ConsumerSession


class BaseConsumer:
    """A consumer as it can be read at any time."""

    _session: ConsumerSession

    def __del__(self) -> None:
        session = getattr(self, "_session", None)  # none where an option was wrong
        if session is not None and session.started and not session.closed:
            warnings.warn(f"{self!r} was never closed: it stays in its group", ResourceWarning, stacklevel=2)

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
