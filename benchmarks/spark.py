"""The Spark data source beside Spark's own connector: both sides of a section in one session, which takes requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.common import Client, Section, Stage, profiled
from benchmarks.data import Data
from benchmarks.reading import Run
from kafka_actors.testing.spark import CONNECTOR, CONNECTOR_SPARK, connector_jars, pyspark_path

OURS, THEIRS = "kafka_actors", "Spark's kafka"
TWO_COLUMNS = f"{OURS}, .schema() of two columns"
FUSED, MAP_IN_ARROW, FROM_JSON = "pipeline, fused", f"{THEIRS} + mapInArrow", f"{THEIRS} + from_json"
TRANSACTIONAL = f"{OURS}, transactional"
OUR_FORMAT, THEIR_FORMAT = "kafka_actors", "kafka"
RECORDS, ROWS = 10_000_000, 1_000_000
WRITES = 10
"""A write of so many rows takes less than a second: too little for a run."""
TASK_ROWS = 100_000
"""Rows of a task of a transactional write, and so of its transaction."""
WARM_UPS = 2
NOTES = (
    f"PySpark {CONNECTOR_SPARK}, `local[*]`, one session for all, {WARM_UPS} runs of each to warm up; timed from `.load()` "
    "to the result, which has to be the same for all"
)


def sections() -> list[Section]:
    found = []
    for codec in ("none", "zstd"):
        session, data = Session(), Data(codec, records=RECORDS)
        clients = {
            OURS: session.asks("totals", data, source=OUR_FORMAT),
            THEIRS: session.asks("totals", data, source=THEIR_FORMAT),
            TWO_COLUMNS: session.asks("totals", data, source=OUR_FORMAT, schema="key binary, value binary"),
        }
        found.append(
            _section(f"spark/{codec}", f"sum(length(value)) and count(*), {codec}", session, clients, data)
        )
    session, data = Session(), Data(records=RECORDS)
    clients = {
        FUSED: session.asks("json_fused", data),
        MAP_IN_ARROW: session.asks("json_map_in_arrow", data, source=THEIR_FORMAT),
        FROM_JSON: session.asks("json_from_json", data, source=THEIR_FORMAT),
    }
    title = "JSON of orders parsed, all of their fields, and the amounts summed"
    found.append(_section("spark/json", title, session, clients, data))
    session = Session()
    clients = {
        OURS: session.asks("stream_totals", data, source=OUR_FORMAT),
        THEIRS: session.asks("stream_totals", data, source=THEIR_FORMAT),
    }
    title = "sum(length(value)) and count(*) of a stream with availableNow, in complete mode on both sides"
    found.append(_section("spark/stream", title, session, clients, data))
    session = Session()
    clients = {OURS: session.writes(OUR_FORMAT), THEIRS: session.writes(THEIR_FORMAT)}
    found.append(
        _section(
            "spark/sink",
            f"{ROWS:,} rows of 100 bytes that are in memory, written by {WRITES} queries, one after the other",
            session,
            clients,
        )
    )
    session = Session()
    plain = {"source": OUR_FORMAT, "tasks": ROWS // TASK_ROWS}
    clients = {TRANSACTIONAL: session.writes(**plain, transactional=True), OURS: session.writes(**plain)}
    title = f"{ROWS:,} rows of 100 bytes that are in memory, in tasks of {TASK_ROWS:,}, written by {WRITES} queries, one after the other"
    found.append(_section("spark/transactional", title, session, clients))
    return found


def _section(name: str, title: str, session: Session, clients: dict[str, Client], *data: Data) -> Section:
    return Section(name, title, clients, data, notes=NOTES, beside=session.open, warm_ups=WARM_UPS)


class Session:
    """A process with a Spark session (`benchmarks.spark_session`), while `open` lasts."""

    def __init__(self, jars: Sequence[str] = CONNECTOR) -> None:
        self._jars = jars
        self._process: subprocess.Popen[str] | None = None
        self._result: list[int] | None = None

    @contextmanager
    def open(self, stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as directory:
            conf = {
                "spark.driver.memory": "4g",
                "spark.jars": connector_jars(self._jars),
                "spark.sql.warehouse.dir": directory,
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
            }
            told = json.dumps({"conf": conf, "broker_pid": stage.cluster.node_pid(1)})
            command = [sys.executable, "-m", "benchmarks.spark_session", told]
            self._process = subprocess.Popen(
                profiled("spark", command) if stage.options.profile else command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(),
            )  # fmt: skip
            self._result = None
            try:
                yield
            finally:
                self._process.communicate(timeout=60)

    def ask(self, query: str, **arguments: object) -> Run:
        """What a query of the session took, and its `result`."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"query": query, **arguments}) + "\n")
        process.stdin.flush()
        for line in process.stdout:  # whatever else the JVM says
            if line.startswith("{"):
                answer: Run = json.loads(line)
                return answer
        raise SystemExit(f"the Spark session ended during {query}")

    def asks(self, query: str, data: Data, **arguments: object) -> Client:
        """A client that reads a topic."""

        def run(stage: Stage) -> Run:
            task = stage.task(data)
            answer = self.ask(query, servers=task.bootstrap, topic=task.topic, **arguments)
            result = answer.pop("result")
            if result[0] != task.total or result != (self._result or result):
                raise SystemExit(
                    f"{query} found {result} in {task.total} records; before it was {self._result}"
                )
            self._result = result
            return {"records": task.total, "rate": task.total / answer["seconds"], **answer}

        return run

    def writes(self, source: str, **arguments: object) -> Client:
        """A client that writes to a new topic, which is then read by Spark's own source."""

        def run(stage: Stage) -> Run:
            rows = ROWS // 50 if stage.options.quick else ROWS
            servers, topic = stage.cluster.bootstrap_servers, f"spark-{time.monotonic_ns()}"
            stage.cluster.create_topic(topic, Data().partitions)
            told = {"servers": servers, "topic": topic, "source": source, "rows": rows, "times": WRITES}
            answer = self.ask("write", **told, **arguments)
            written = self.ask("totals", servers=servers, topic=topic, source=THEIR_FORMAT)["result"]
            stage.cluster.delete_topic(topic)
            total = rows * WRITES
            if written != [total, total * Data().size]:
                raise SystemExit(f"{total} rows were written, the topic has {written}")
            return {"records": total, "rate": total / answer["seconds"], **answer}

        return run


def _environment() -> dict[str, str]:
    path = os.pathsep.join(
        filter(None, [str(pyspark_path(CONNECTOR_SPARK)), os.getcwd(), os.environ.get("PYTHONPATH")])
    )
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
