"""Result of the demo: its summary as tables, and a check that the demo has shown what it promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from rich.table import Table

from .cluster import Filled
from .ledger import Account

__all__ = ["DemoResult", "failures", "show"]


class DemoResult(Struct, frozen=True):
    """Result of a run of the demo. `took_s`: seconds from the start of the job to its end; `killed`: the name of the worker."""

    filled: Filled
    account: Account
    committed: dict[tuple[str, int], int | None]
    took_s: float
    killed: str | None

    @property
    def processed(self) -> int:
        return sum(self.account.counted.values())

    @property
    def duplicates(self) -> int:
        return self.account.delivered - self.processed

    @property
    def duplicates_before_kill(self) -> int:
        return self.account.delivered_before_kill - self.account.counted_before_kill


def failures(result: DemoResult) -> list[str]:
    """Differences from what the demo promises, one line each; none where it has shown all."""
    found = []
    if result.killed is None:
        found.append("no worker was killed: the job ended before half of the orders were processed")
    for (topic, partition), end in sorted(result.filled.ends.items()):
        counted = result.account.counted.get((topic, partition), 0)
        if counted != end:
            found.append(f"{topic}-{partition}: {counted:,} of {end:,} orders processed")
        committed = result.committed.get((topic, partition))
        if committed != end:
            found.append(f"{topic}-{partition}: committed to {committed}, not to its end {end}")
    produced, counted_up = result.filled.revenue, result.account.revenue
    for country in sorted(produced.keys() | counted_up.keys()):
        sold, booked = produced.get(country, 0), counted_up.get(country, 0)
        if sold != booked:
            found.append(f"{country}: {money(booked)} in the ledger, {money(sold)} produced")
    return found


def show(result: DemoResult, put: Callable[[Any], None]) -> None:
    """Prints the summary as tables."""
    put("")
    put(_facts(result))
    put("")
    put(_offsets(result))
    put("")
    put(_revenue(result))
    put("")


def _facts(result: DemoResult) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    rate = result.account.delivered / result.took_s if result.took_s else 0.0
    table.add_row("orders produced", f"{result.filled.orders:,}")
    table.add_row("orders processed", f"{result.processed:,}", f"in {result.took_s:.1f} s")
    table.add_row("deliveries", f"{result.account.delivered:,}", f"{rate:,.0f} a second")
    since = result.duplicates - result.duplicates_before_kill
    table.add_row(
        "duplicates after the kill", f"{since:,}", "delivered again: not committed when the worker died"
    )
    if result.duplicates_before_kill:
        table.add_row("duplicates before the kill", f"{result.duplicates_before_kill:,}")
    taken = result.account.taken_over
    if taken:
        what = f"until each of {len(taken)} unfinished partitions of {result.killed} had results of another worker"
        table.add_row("time to take over", f"{max(taken.values()):.2f} s", what)
    return table


def _offsets(result: DemoResult) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title, justify in (
        ("TOPIC", "left"),
        ("PARTITION", "right"),
        ("COMMITTED", "right"),
        ("END", "right"),
    ):
        table.add_column(title, justify="right" if justify == "right" else "left")
    table.add_column("")
    for (topic, partition), end in sorted(result.filled.ends.items()):
        committed = result.committed.get((topic, partition))
        known = "none" if committed is None else f"{committed:,}"
        table.add_row(
            topic, str(partition), known, f"{end:,}", "ok" if committed == end else "NOT AT ITS END"
        )
    return table


def _revenue(result: DemoResult) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("COUNTRY")
    for title in ("PRODUCED", "LEDGER", "WITHOUT DEDUPLICATION"):
        table.add_column(title, justify="right")
    table.add_column("")
    produced, once, always = result.filled.revenue, result.account.revenue, result.account.revenue_delivered
    for country in sorted(produced.keys() | always.keys()):
        sums = [sums.get(country, 0) for sums in (produced, once, always)]
        table.add_row(country, *map(money, sums), "ok" if sums[0] == sums[1] else "DIFFERS")
    totals = [sum(sums.values()) for sums in (produced, once, always)]
    table.add_row("all", *map(money, totals), "ok" if totals[0] == totals[1] else "DIFFERS", style="bold")
    return table


def money(cents: int) -> str:
    """Cents as an amount: 123456 → 1,234.56."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"
