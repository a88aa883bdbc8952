"""Differences of Spark's versions, with the oldest that works: other tests run with the installed one, the newest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_actors.testing.spark import OLDEST_SPARK, pyspark_path

ROOT = Path(__file__).parents[2]


@pytest.mark.kafka
@pytest.mark.slow  # three dozen tests of Spark a second time
@pytest.mark.timeout(2_400)
def test_tests_of_what_differs_pass_with_the_oldest_spark() -> None:
    """In a Python of their own, in which that PySpark is found first, and our data source where it looks for some."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join(filter(None, [str(pyspark_path(OLDEST_SPARK)), os.environ.get("PYTHONPATH")]))
    variables = {**clean, "PYTHONPATH": path}
    found = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == OLDEST_SPARK
    command = [sys.executable, "-m", "pytest", "tests/integration", "-m", "spark_versions and not slow", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:time_budgets"],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout[-20_000:], done.stderr[-5_000:], sep="\n")
    assert done.returncode == 0
