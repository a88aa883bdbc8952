"""Spark's own source and other versions of PySpark: each is fetched once, and a failed fetch leaves nothing half done."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from kafka_actors.testing import spark
from kafka_actors.testing.spark import (
    CONNECTOR,
    CONNECTOR_SPARK,
    OLDEST_SPARK,
    connector_jars,
    pyspark_path,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def locked(path: Path) -> Iterator[None]:
        yield

    monkeypatch.setattr(spark, "locked", locked)
    monkeypatch.setattr(spark, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(spark, "find_maven", lambda: "mvn")
    monkeypatch.setattr(spark.sys, "prefix", str(tmp_path))


def test_each_jar_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetched: list[str] = []

    def run(command: list[str], failure: str) -> None:
        options = dict(part.removeprefix("-D").split("=", 1) for part in command if part.startswith("-D"))
        fetched.append(options["artifact"])
        _, artifact, version = options["artifact"].split(":")
        jar = Path(options["outputDirectory"]) / f"{artifact}-{version}.jar"
        jar.parent.mkdir(exist_ok=True)
        jar.touch()

    monkeypatch.setattr(spark, "run_tool", run)
    jars = connector_jars().split(",")
    assert connector_jars().split(",") == jars
    assert fetched == list(CONNECTOR)
    assert [Path(jar).is_file() for jar in jars] == [True] * len(CONNECTOR)
    assert jars[0] == str(tmp_path / "spark-connector" / "spark-sql-kafka-0-10_2.13-4.2.0.jar")
    assert connector_jars(["io.delta:delta-storage:4.3.1"]) == str(
        tmp_path / "spark-connector" / "delta-storage-4.3.1.jar"
    )


def test_a_version_of_pyspark_is_fetched_once_without_its_dependencies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[Any]] = []

    def run(command: list[Any], **_: object) -> None:
        commands.append(command)
        (Path(command[command.index("--target") + 1]) / "pyspark").mkdir()

    monkeypatch.setattr(spark.subprocess, "run", run)
    home = pyspark_path("4.1.4")
    assert pyspark_path("4.1.4") == home == tmp_path / "pyspark-4.1.4"
    assert (home / "pyspark").is_dir()
    assert [(command[-1], "--no-deps" in command) for command in commands] == [("pyspark==4.1.4", True)]


def test_a_fetch_that_fails_is_tried_again_the_next_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(command: list[Any], **_: object) -> None:
        raise CalledProcessError(1, command)

    monkeypatch.setattr(spark.subprocess, "run", fail)
    for _ in range(2):
        with pytest.raises(CalledProcessError):
            pyspark_path("4.1.4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", ["spark.md", "compatibility.md"])
def test_the_pages_have_the_versions_that_tests_run_with(page: str) -> None:
    """The newest is the one that the lock file has."""
    newest = re.findall(r"^pyspark==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.M)
    table = (ROOT / "docs" / "reference" / page).read_text().partition("| PySpark |")[2].partition("\n\n")[0]
    versions = set(re.findall(r"^\| (\d+\.\d+\.\d+) \|", table, re.M))
    assert {OLDEST_SPARK, CONNECTOR_SPARK, *newest} - versions == set()


def test_the_slow_tests_run_with_the_oldest_spark_and_that_of_the_connector() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^\t\$\(MAKE\) test-spark(?: SPARK=(\S+))?$", makefile, re.M) == ["", CONNECTOR_SPARK]
