"""Options of clients and jobs, checked and made into one config: Kafka's names with underscores, or Java's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.options import ClientConfig, ConsumerConfig, JobConfig, ProducerConfig

    from .builder import (
        PARQUET_COMPRESSIONS,
        build,
        convert,
        known_name,
        looked_up,
        producer_over,
        references_of,
        refusal,
        resolved,
    )

_HOMES = {
    "ClientConfig": "builder",
    "ConsumerConfig": "builder",
    "JobConfig": "builder",
    "PARQUET_COMPRESSIONS": "builder",
    "ProducerConfig": "builder",
    "build": "builder",
    "convert": "builder",
    "known_name": "builder",
    "looked_up": "builder",
    "producer_over": "builder",
    "references_of": "builder",
    "refusal": "builder",
    "resolved": "builder",
}

__all__ = [
    "PARQUET_COMPRESSIONS",
    "ClientConfig",
    "ConsumerConfig",
    "JobConfig",
    "ProducerConfig",
    "build",
    "convert",
    "known_name",
    "looked_up",
    "producer_over",
    "references_of",
    "refusal",
    "resolved",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
