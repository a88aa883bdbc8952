import json

import msgspec
import pytest

from kafka_actors.cli.demo.orders import REGIONS, make_orders, revenue


def test_orders_look_like_orders_and_say_what_they_are_worth() -> None:
    for made in make_orders("eu", 500):
        order = json.loads(made.value)
        assert order["country"] == made.country
        assert order["country"] in REGIONS["eu"]
        sold = sum(line["quantity"] * line["unit_price"] for line in order["lines"])
        assert made.cents == sold + order["shipping"] - order["discount"]
        assert made.cents > 0
        assert revenue(made.value) == (made.country, made.cents)


def test_orders_are_the_same_for_the_same_seed_and_differ_otherwise() -> None:
    assert list(make_orders("us", 50, seed=1)) == list(make_orders("us", 50, seed=1))
    assert list(make_orders("us", 50, seed=1)) != list(make_orders("us", 50, seed=2))


def test_all_countries_of_a_region_sell_and_ids_are_distinct() -> None:
    made = list(make_orders("asia", 2_000))
    assert {m.country for m in made} == set(REGIONS["asia"])
    assert len({json.loads(m.value)["order_id"] for m in made}) == 2_000


@pytest.mark.parametrize("value", [b"", b"{}", b'{"country": "DE", "lines": 3}', b"not json"])
def test_what_is_no_order_is_an_error(value: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        revenue(value)
