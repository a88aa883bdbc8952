"""Other versions of PySpark than the installed one, and Spark's own Kafka source for comparison.

`PYTHONPATH=$(python -m kafka_actors.testing.spark 4.1.4) python …` runs with that PySpark and all other packages as
installed; without a version, with the oldest that works.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .distribution import cache_root, find_maven, locked, run_tool

OLDEST_SPARK = "4.1.4"
"""Oldest PySpark that works with this library."""
CONNECTOR_SPARK = "4.2.0"
"""PySpark version that `CONNECTOR` was built for."""
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
"""Maven coordinates of Spark's own Kafka source: the newest release, which also runs in later versions of Spark."""


def connector_jars(coordinates: Iterable[str] = CONNECTOR) -> str:
    """Returns jars by their Maven coordinates as a value of `spark.jars`, fetched once with Maven.

    Raises `KafkaUnavailable` if that fails.
    """
    directory = cache_root() / "spark-connector"
    jars = []
    for jar_coordinates in coordinates:
        _, artifact, version = jar_coordinates.split(":")
        jar = directory / f"{artifact}-{version}.jar"
        with locked(directory.with_name("spark-connector.lock")):
            if not jar.is_file():
                command = [find_maven(), "-B", "-q", "-ntp", "dependency:copy"]
                command += [f"-Dartifact={jar_coordinates}", f"-DoutputDirectory={directory}"]
                run_tool(command, f"Maven could not fetch {jar_coordinates}")
        jars.append(str(jar))
    return ",".join(jars)


def pyspark_path(version: str) -> Path:
    """Returns a directory with only PySpark `version`, to be put in front of `PYTHONPATH`.

    The first call fetches it with pip, which takes half a minute and 400 MB. It is kept in this Python environment.
    Raises `CalledProcessError` if pip fails.
    """
    home = Path(sys.prefix) / f"pyspark-{version}"
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.is_dir():
            draft = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
            try:
                # Its one dependency, py4j, comes with the installed PySpark.
                subprocess.run(
                    [*pip, "--no-deps", "--target", draft, f"pyspark=={version}"],
                    check=True,
                    stdout=sys.stderr,
                )
                draft.rename(home)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return home


if __name__ == "__main__":
    print(pyspark_path((sys.argv[1:] or [OLDEST_SPARK])[0]))  # noqa: T201
