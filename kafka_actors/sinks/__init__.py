"""Sinks, to which results are written: `KafkaSink`, `ParquetSink`, or a function or class of the user's.

A sink is a definition that is pickled to the workers, where it is opened. Rows that are written may wait in memory until
`flush`, which returns once all of them are durable; offsets are committed after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .dead_letters import DeadLetters
    from .kafka import KafkaSink, KafkaWriter
    from .parquet import ParquetSink, ParquetWriter
    from .sink import Origin, Sink, UserSink, Writer, as_sink, close_all, origin_of

# Imported when first used: a job without a sink needs no producer.
_HOMES = {
    "DeadLetters": "dead_letters",
    "KafkaSink": "kafka",
    "KafkaWriter": "kafka",
    "Origin": "sink",
    "ParquetSink": "parquet",
    "ParquetWriter": "parquet",
    "Sink": "sink",
    "UserSink": "sink",
    "Writer": "sink",
    "as_sink": "sink",
    "close_all": "sink",
    "origin_of": "sink",
}

__all__ = [
    "DeadLetters",
    "KafkaSink",
    "KafkaWriter",
    "Origin",
    "ParquetSink",
    "ParquetWriter",
    "Sink",
    "UserSink",
    "Writer",
    "as_sink",
    "close_all",
    "origin_of",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
