"""A home of Spark in which tests start drivers and Python workers with half of the CPU: `python tests/spark_home.py` makes it, once for each cache.

Python processes of it find the installed PySpark, and not `pyspark.zip`, where nothing is compiled: they start in a third of the time (0.5
against 1.5 s of CPU). JVMs have Spark's classes from an archive (JEP 350; 8 against 16 s of CPU on 2026-11-26), which only this Java reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from forked_python import spark_python

from kafka_actors.testing.distribution import cache_root, locked

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java programs of tests are short-lived: compiling them a second time takes a third of what Spark's tests compute (spark batch: 116 CPU seconds
with Java's defaults, 76 without its second compiler). The serial collector starts no threads of its own."""
LOADED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(10).mapInArrow(lambda batches: batches, "id long")
assert rows.selectExpr("sum(id)", "max(cast(id as string))").collect()
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
query = stream.writeStream.format("noop").trigger(availableNow=True).start()
query.awaitTermination(5)
spark.stop()
"""
"""The program whose classes are in the archive."""


def spark_home(pyspark: Path | None = None) -> Path:
    """Returns the home for a directory with PySpark, the installed one by default, and makes it if it isn't there."""
    if pyspark is None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        pyspark = Path(spec.origin).parent
    java = os.path.realpath(shutil.which("java") or "")
    of = f"{pyspark} {version('pyspark')} {java}"
    home = cache_root() / f"spark-home-{zlib.crc32(of.encode()):08x}"
    with locked(home.with_suffix(".lock")):
        home.mkdir(exist_ok=True)
        for path in pyspark.iterdir():
            if path.name in ("bin", "jars", "sbin") and not (home / path.name).exists():
                (home / path.name).symlink_to(path)
    return home


def spark_environment(pyspark: Path | None = None) -> dict[str, str]:
    """Returns the environment variables with which Spark starts in this home."""
    home = spark_home(pyspark)
    archive = home / "classes.jsa"
    found = {"SPARK_HOME": str(home), "JDK_JAVA_OPTIONS": OPTIONS, "PYSPARK_PYTHON": spark_python(home)}
    if archive.exists():
        found["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    return found


def make_archive() -> None:
    """Has a driver of the installed PySpark write the archive of its classes when it ends."""
    home = spark_home()
    archive, draft = home / "classes.jsa", home / "draft.jsa"
    with locked(home / "classes.lock"), tempfile.TemporaryDirectory() as directory:
        if archive.exists():
            return
        draft.unlink(missing_ok=True)
        environment = {
            **os.environ,
            **spark_environment(),
            "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={draft} -Xlog:cds*=off",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        # The driver's JVM ends behind this program, and holds the pipe until then.
        subprocess.run(
            [sys.executable, "-c", LOADED], cwd=directory, env=environment, check=True, capture_output=True
        )
        if draft.exists():
            draft.rename(archive)


if __name__ == "__main__":
    make_archive()
