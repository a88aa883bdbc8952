"""Options of the Spark source as its tests write them."""

from __future__ import annotations

import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.options import BatchOptions, parse_batch

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def parse(**options: str) -> BatchOptions:
    """Keys with `__` for dots, as keyword arguments can't have them."""
    return parse_batch({**BASE, **{key.replace("__", "."): value for key, value in options.items()}})


def orders(**options: str) -> BatchOptions:
    """Options that read the topic `orders`."""
    return parse(subscribe="orders", **options)


def refusal(options: dict[str, str]) -> ConfigError:
    """The error for these options, which is one line."""
    with pytest.raises(ConfigError) as caught:
        parse_batch(options)
    assert "\n" not in str(caught.value)
    return caught.value
