"""A Spark session for tests: two cores, small, quiet, with the Python that runs the tests; and what it says and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from waiting import slow_s

JARS = "spark__jars"


class _Running:
    """The session that this process has, and its settings: starting another takes seconds."""

    session: SparkSession | None = None
    settings: Mapping[str, str] = {}


@contextmanager
def spark_session(directory: Path, **settings: str) -> Iterator[SparkSession]:
    """The session of this process, which is started anew where `settings` differ from the last ones: these are Spark's, with `__` for
    dots. It runs on at the end, with its configuration as it was and no query, for whoever comes next. The warehouse is in the `directory` of
    who started it."""
    if _Running.session is None or _Running.settings != settings or _is_stopped(_Running.session):
        if _Running.session is not None:
            _Running.session.stop()
            if settings.get(JARS) != _Running.settings.get(JARS):
                _end_jvm()
        _Running.session, _Running.settings = _started(directory, settings), settings
    session = _Running.session
    before = session.conf.getAll
    yield session
    for query in session.streams.active:
        query.stop()
    for name in session.conf.getAll.keys() - before.keys():
        session.conf.unset(name)
    for name, value in before.items():
        if session.conf.get(name) != value:
            session.conf.set(name, value)


def _end_jvm() -> None:
    """Ends the JVM of this process's driver, so that the next session starts another: jars are for the classes of one that starts."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its input
    gateway.proc.wait(slow_s(30))
    SparkContext._gateway = SparkContext._jvm = None


def _is_stopped(session: SparkSession) -> bool:
    context = session.sparkContext._jsc
    return context is None or context.sc().isStopped()


def _started(directory: Path, settings: Mapping[str, str]) -> SparkSession:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (
            SparkSession.builder.master("local[2]")
            .appName("kafka-actors tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(directory))
        )
        for name, value in settings.items():
            builder = builder.config(name.replace("__", "."), value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session


def errors_line(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """The line with which our error comes out of Spark's report."""
    lines = [
        line
        for line in str(caught.value).splitlines()
        if line.startswith(("kafka_actors.errors.", "kafka_actors.schemas.errors."))
    ]
    assert lines, str(caught.value)
    assert len(set(lines)) == 1, str(caught.value)
    return lines[0]


def written(out: Path) -> list[str]:
    """The files of finished micro-batches: Spark's log names them, and those that a killed task began are none of them."""
    if not (out / "_spark_metadata").is_dir():
        return []
    logs = [log for log in (out / "_spark_metadata").iterdir() if not log.name.startswith(".")]
    lines = [line for log in logs for line in log.read_text().splitlines() if line.startswith("{")]
    return sorted({unquote(urlsplit(json.loads(line)["path"]).path) for line in lines})
