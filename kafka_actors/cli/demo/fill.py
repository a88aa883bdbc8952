"""Fills the demo's topics with orders, by a client that is not ours, and makes sure that they are all there."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .orders import REGIONS, make_orders
from .place import DemoCluster, DemoFailed

__all__ = ["Filled", "check_kept", "fill"]

CONFIG = {"linger.ms": 50, "batch.size": 200_000, "log_level": 0}


class Filled(Struct, frozen=True):
    """What was produced: end offset of each partition, and revenue per country in cents."""

    ends: dict[tuple[str, int], int]
    revenue: dict[str, int]

    @property
    def orders(self) -> int:
        return sum(self.ends.values())


def fill(place: DemoCluster, orders: int, say: Callable[[str], None]) -> Filled:
    """Produces `orders` orders over the regions with zstd. Raises `DemoFailed` if the cluster did not keep all."""
    from kafka_actors.testing.produce import Produce

    produce = Produce(place.bootstrap_servers)
    revenue: dict[str, int] = {}
    ends: dict[tuple[str, int], int] = {}
    for number, region in zip(_shares(orders, len(REGIONS)), REGIONS, strict=True):
        keys, values = [], []
        for made in make_orders(region, number):
            keys.append(made.key)
            values.append(made.value)
            revenue[made.country] = revenue.get(made.country, 0) + made.cents
        topic = place.topics[region]
        counts = produce(topic, values, keys=keys, compression="zstd", config=CONFIG)
        ends |= {(topic, partition): count for partition, count in counts.items()}
        size = sum(map(len, values)) / 1e6
        say(f"produced {number:,} orders ({size:.0f} MB of JSON, zstd) to {topic}")
    filled = Filled(ends, revenue)
    check_kept(place, filled)
    return filled


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (1 if part < total % parts else 0) for part in range(parts)]


def check_kept(place: DemoCluster, filled: Filled) -> None:
    """An embedded broker drops the oldest of what passes 5 MB a partition, without a word. Raises `DemoFailed`."""
    for (topic, partition), (low, high) in place.watermarks().items():
        produced = filled.ends.get((topic, partition), 0)
        if (low, high) != (0, produced):
            raise DemoFailed(
                f"{topic}-{partition} keeps offsets {low} to {high} of {produced} orders produced: "
                "there is too much for one partition of the embedded broker; ask for fewer --orders"
            )
