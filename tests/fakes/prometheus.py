"""A real Prometheus of a test's own, which scrapes one target and evaluates rules; Debian's package has it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from waiting import at_pace_s, slow_s, until

from kafka_actors.testing.node import free_ports

METRIC = re.compile(r"\b(?:kafka|kafka_actors|messaging)_[a-z_]+\b(?!\s*=)")
MISSING = "there is no prometheus on this machine: apt-get install prometheus"


class Prometheus:
    """Scrapes `target` twice a second, and evaluates the rules of a file as often. On a slow machine it scrapes less often: an answer has as
    long as there is between two, and one that comes later counts as none."""

    def __init__(self, directory: Path, target: str, rules: Path | None = None) -> None:
        self._port = free_ports(1)[0]
        config = directory / "prometheus.yml"
        config.write_text(
            textwrap.dedent(f"""\
            global:
              scrape_interval: {round(1_000 * min(at_pace_s(0.5), 10))}ms
              evaluation_interval: 500ms
            rule_files: {json.dumps([str(rules)] if rules else [])}
            scrape_configs:
              - job_name: kafka-actors
                static_configs:
                  - targets: ["{target}"]
            """)
        )
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=error",
            ],
            stdin=subprocess.DEVNULL,
        )

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; None while it isn't up, and for an expression that is wrong."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=slow_s(5)) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series; nothing while it isn't up."""
        found = self.ask("query", query=expression)
        return [(s["metric"], float(s["value"][1])) for s in found["result"]] if found else []

    def some(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Waits until there are series: a scrape that took too long ends all of them for a moment."""
        found: list[tuple[dict[str, str], float]] = []

        def there() -> bool:
            found[:] = self.query(expression)
            return bool(found)

        until(there, 60, f"series of {expression}", 0.2)
        return found

    def until(self, expression: str, value: float) -> None:
        """Waits until a query of one series has this value."""
        until(
            lambda: [found for _, found in self.query(expression)] == [value],
            60,
            f"{expression} to be {value}",
            0.2,
            shown=lambda: self.query(expression),
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(slow_s(10))


def metrics_of(expression: str) -> set[str]:
    """The names of the metrics in an expression of PromQL."""
    return set(METRIC.findall(re.sub(r"\{[^}]*\}|by \([^)]*\)", "", expression)))


def blocked_at(url: str) -> dict[tuple[str, int], str]:
    """Partitions of a job's `/metrics` from which nothing is read or processed, each with the reason."""
    with urllib.request.urlopen(f"{url.rstrip('/')}/metrics", timeout=slow_s(5)) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    blocked = (s for f in families for s in f.samples if s.name == "kafka_actors_partition_blocked")
    return {(s.labels["topic"], int(s.labels["partition"])): s.labels["reason"] for s in blocked if s.value}


@contextmanager
def prometheuses(directory: Path) -> Iterator[Callable[..., Prometheus]]:
    """Yields a function that starts one for a target; all of them end with the block. Skips the test where there is no Prometheus."""
    if shutil.which("prometheus") is None:
        pytest.skip(MISSING)
    with ExitStack() as stack:

        def start(target: str, rules: Path | None = None) -> Prometheus:
            started = Prometheus(directory, target, rules)
            stack.callback(started.close)
            return started

        yield start
