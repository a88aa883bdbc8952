"""Where results go: `KafkaSink`, `ParquetSink`, or a function or class of the user's.

A sink is a definition and travels to the workers, where it is opened. What is written may wait in memory until
`flush`, which returns only when all of it is safe; offsets are committed after that.
"""

from .dead_letters import DeadLetters
from .kafka import KafkaSink, KafkaWriter
from .parquet import ParquetSink, ParquetWriter
from .user import UserSink, as_sink
from .writer import Origin, Sink, Writer, close_all, origin_of

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
