import io

import msgspec
from rich.console import Console

from kafka_actors.cli.demo.cluster import Filled
from kafka_actors.cli.demo.ledger import Account
from kafka_actors.cli.demo.summary import DemoResult, failures, money, show

EU, US = ("orders-eu", 0), ("orders-us", 0)
GOOD = DemoResult(
    filled=Filled({EU: 100, US: 50}, {"DE": 12_345, "US": 99}),
    account=Account(
        counted={EU: 100, US: 50},
        delivered=170,
        counted_before_kill=80,
        delivered_before_kill=80,
        revenue={"DE": 12_345, "US": 99},
        revenue_delivered={"DE": 15_000, "US": 99},
        taken_over={EU: 0.75, US: 1.5},
    ),
    committed={EU: 100, US: 50},
    took_s=10.0,
    killed="worker-2.1",
)


def _with(result: DemoResult, **changes: object) -> DemoResult:
    account = {name: changes.pop(name) for name in list(changes) if name in Account.__struct_fields__}
    changed = msgspec.structs.replace(result.account, **account)
    return msgspec.structs.replace(result, account=changed, **changes)


def test_what_is_as_it_must_be_has_no_failures() -> None:
    assert failures(GOOD) == []


def test_each_kind_of_failure_is_named() -> None:
    assert failures(_with(GOOD, counted={EU: 99, US: 50})) == ["orders-eu-0: 99 of 100 orders processed"]
    assert failures(_with(GOOD, counted={US: 50})) == ["orders-eu-0: 0 of 100 orders processed"]
    assert failures(_with(GOOD, committed={EU: 100, US: 49})) == [
        "orders-us-0: committed to 49, not to its end 50"
    ]
    assert failures(_with(GOOD, committed={EU: 100, US: None})) == [
        "orders-us-0: committed to None, not to its end 50"
    ]
    assert failures(_with(GOOD, revenue={"DE": 12_346, "US": 99})) == [
        "DE: 123.46 in the ledger, 123.45 produced"
    ]
    assert failures(_with(GOOD, revenue={"DE": 12_345, "US": 99, "XX": 1})) == [
        "XX: 0.01 in the ledger, 0.00 produced"
    ]
    assert failures(_with(GOOD, killed=None)) == [
        "no worker was killed: the job ended before half of the orders were processed"
    ]


def test_the_summary_shows_duplicates_take_over_offsets_and_both_sums() -> None:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    show(GOOD, console.print)
    assert isinstance(console.file, io.StringIO)
    rows = [" ".join(row.split()) for row in console.file.getvalue().splitlines()]
    assert "orders produced 150" in rows
    assert "orders processed 150 in 10.0 s" in rows
    assert any(row.startswith("duplicates after the kill 20 ") for row in rows)
    assert any(
        row.startswith("time to take over 1.50 s until each of 2 unfinished partitions") for row in rows
    )
    assert "orders-eu 0 100 100 ok" in rows
    assert "DE 123.45 123.45 150.00 ok" in rows
    assert "all 124.44 124.44 150.99 ok" in rows


def test_money() -> None:
    assert [money(c) for c in (0, 5, 123_456_789, -1)] == ["0.00", "0.05", "1,234,567.89", "-0.01"]
