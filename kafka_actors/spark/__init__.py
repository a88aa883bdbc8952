"""Kafka for Spark in PySpark, without a JAR: the data source, its transactional sink (`transactional`), and `OnSpark`, the engine of
pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .engine.on_spark import OnSpark
    from .source.transactional import transactional

# Imported when first used: Spark's Python workers read and write without the engine.
_HOMES = {
    "OnSpark": "engine.on_spark",
    "transactional": "source.transactional",
}

__all__ = [
    "OnSpark",
    "transactional",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
