"""Orders of a shop on three continents: generated for the demo, and parsed by its workers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from kafka_actors.base import decoders

__all__ = ["REGIONS", "GeneratedOrder", "OrderLine", "Sale", "ShopOrder", "make_orders", "revenue"]

REGIONS: dict[str, tuple[str, ...]] = {
    "eu": ("DE", "ES", "FR", "IT", "NL", "PL", "SE"),
    "us": ("CA", "MX", "US"),
    "asia": ("ID", "IN", "JP", "KR", "SG", "VN"),
}
PRODUCTS = (
    ("SKU-0107", "Espresso cups, set of 4", 2490),
    ("SKU-0214", "Moka pot, 6 cups", 3195),
    ("SKU-0330", "Single origin beans, 1 kg", 2199),
    ("SKU-0331", "Decaf beans, 500 g", 1249),
    ("SKU-0415", "Hand grinder, steel burrs", 7950),
    ("SKU-0502", "Paper filters, 100 pieces", 449),
    ("SKU-0609", "Gooseneck kettle, 1 l", 5999),
    ("SKU-0777", "Descaler, 2 x 250 ml", 899),
    ("SKU-0850", "Portafilter, bottomless", 4325),
    ("SKU-0911", "Barista scale with timer", 3849),
)
SEGMENTS = ("new", "returning", "loyal")
PAYMENTS = ("card", "paypal", "invoice", "gift card")
SHIPPING_CENTS = (0, 390, 590, 1290)
DISCOUNTS_CENTS = (0, 0, 0, 100, 250, 500)


class OrderLine(Struct, frozen=True):
    """One product of an order; `unit_price` in cents."""

    sku: str
    name: str
    quantity: int
    unit_price: int


class ShopOrder(Struct, frozen=True):
    """An order as it stands in the topic, as JSON. All amounts are whole cents of one currency."""

    order_id: str
    placed_at: str
    country: str
    customer: dict[str, int | str]
    lines: list[OrderLine]
    shipping: int
    discount: int
    payment: str


class Sale(Struct, frozen=True):
    """Fields of a line that `revenue` needs; decoding skips the others."""

    quantity: int
    unit_price: int


class GeneratedOrder(Struct, frozen=True):
    """An order on its way to a topic, and what it is worth."""

    key: bytes
    value: bytes
    country: str
    cents: int


class _SoldLine(Struct, frozen=True):
    country: str
    lines: list[Sale]
    shipping: int
    discount: int


_decode = decoders.json(_SoldLine).decode


def revenue(value: bytes) -> tuple[str, int]:
    """Country and cents of an order in JSON. Raises `msgspec.DecodeError` for anything else."""
    order = _decode(value)
    cents = order.shipping - order.discount
    for line in order.lines:
        cents += line.quantity * line.unit_price
    return order.country, cents


def make_orders(region: str, number: int, seed: int = 0) -> Iterator[GeneratedOrder]:
    """`number` orders of one region over one day; the same for the same seed."""
    rand = random.Random(f"{seed} {region}")
    encode = msgspec.json.Encoder().encode
    countries = rand.choices(REGIONS[region], k=number)
    for n, country in enumerate(countries):
        second = n * 86_400 // number
        lines, cents = _basket(rand)
        shipping, discount = rand.choice(SHIPPING_CENTS), rand.choice(DISCOUNTS_CENTS)
        customer = int(rand.random() * 50_000)
        order = ShopOrder(
            order_id=f"{region}-{n:07d}",
            placed_at=f"2026-11-27T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
            country=country,
            customer={"id": customer, "segment": SEGMENTS[customer % len(SEGMENTS)]},
            lines=lines,
            shipping=shipping,
            discount=discount,
            payment=rand.choice(PAYMENTS),
        )
        yield GeneratedOrder(b"%d" % customer, encode(order), country, cents + shipping - discount)


def _basket(rand: random.Random) -> tuple[list[OrderLine], int]:
    """One to three products, and what they cost."""
    lines, cents = [], 0
    for _ in range(1 + int(rand.random() * 3)):
        sku, name, price = PRODUCTS[int(rand.random() * len(PRODUCTS))]
        quantity = 1 + int(rand.random() * 3)
        lines.append(OrderLine(sku, name, quantity, price))
        cents += quantity * price
    return lines, cents
