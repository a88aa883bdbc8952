"""Settings of the brokers of a test cluster."""

from __future__ import annotations

_NEW_GROUPS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}

_PROPERTIES = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Tests use shorter sessions than operators do, and no delay before the first rebalance.
    "group.initial.rebalance.delay.ms": "0",
    # Each half second by default, which is a third of what an idle broker costs.
    "metadata.max.idle.interval.ms": "5000",
    "group.min.session.timeout.ms": "1000",
    # A killed broker is replaced after 5 s instead of 9 s; shorter would fence live ones on a busy machine.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "5000",
    # Small thread pools and buffers: three brokers share a laptop's cores and memory with the tests.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
    # Compaction and retention run within seconds on topics that configure them. By default nothing is deleted, because
    # records with old timestamps would be deleted at once.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


def broker_properties(brokers: int, release: tuple[int, int]) -> dict[str, str]:
    """Returns what all brokers of a cluster of that size have in common."""
    new_groups = _NEW_GROUPS if release >= (4, 0) else {}  # before 4.0, KIP-848 was a preview, off by default
    return {**_PROPERTIES, **new_groups, **_internal_topics(brokers)}


def _internal_topics(brokers: int) -> dict[str, str]:
    replicas = min(3, brokers)
    in_sync = max(1, replicas - 1)
    settings = {}
    for prefix in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{prefix}.replication.factor"] = str(replicas)
        settings[f"{prefix}.num.partitions"] = "4"
    settings["transaction.state.log.min.isr"] = str(in_sync)
    settings["share.coordinator.state.topic.min.isr"] = str(in_sync)
    return settings
