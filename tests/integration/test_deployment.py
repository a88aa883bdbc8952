"""The recipes by which executors and nodes get the package, as the page on the Spark data source has them.

A wheel of the sources is built, and put where each recipe wants it. What differs from the page: no package registry is asked, so
the dependencies are those of the Python that runs the tests, and `tar` packs what venv-pack would. Not tested here: images,
YARN, Kubernetes, and Ray's `pip`, which wants virtualenv on its nodes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import slow_s

from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.node import free_ports
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

Topic = Callable[..., str]

REPOSITORY = Path(__file__).parents[2]
SOURCES = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"),
    *("kafka_actors", "assignors", "pyspark_kafka_actors"),
)
COUNT = 100

# Reads a topic in the executors, who tell where they have the package.
ARCHIVE = """
import json
import os
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

servers, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()


def where(batches):
    import kafka_actors

    for batch in batches:
        at = os.path.abspath(kafka_actors.__file__)
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "at": [at]})


options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
frame = spark.read.format("kafka_actors").options(**options).load().mapInArrow(where, "rows bigint, at string")
print(json.dumps([row.asDict() for row in frame.collect()]))
"""

CLIENT = """
import sys

from pyspark.sql import SparkSession

address, servers, topic = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
print(spark.read.format("kafka_actors").options(**options).load().count())
"""

# The driver has the package; Ray starts its workers without it, with the same Python. They tell where they have it.
JOB = """
import os
import sys
from pathlib import Path

package, wheel, servers, topic, directory = sys.argv[1:]
sys.path.insert(0, package)

import kafka_actors as ka
import ray

ray.init(address="local", num_cpus=4, include_dashboard=False, runtime_env={"py_modules": [wheel]})


def process(batch):
    import kafka_actors

    with open(Path(directory) / str(os.getpid()), "a") as file:
        file.write(f"{batch.num_rows} {kafka_actors.__file__}\\n")


job = ka.Job(
    topics=topic,
    group_id=topic,
    bootstrap_servers=servers,
    process=process,
    until="latest",
    config={"start_timeout_s": 600},
)
with job.start() as running:
    running.wait(timeout=600)
ray.shutdown()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel of a copy of the sources: building leaves files among them."""
    directory = tmp_path_factory.mktemp("wheel")
    copy = directory / "sources"
    copy.mkdir()
    for name in SOURCES:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("*.so"))
        else:
            shutil.copy(REPOSITORY / name, copy)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(directory)!r})"
    ran([sys.executable, "-c", build], copy)
    (made,) = directory.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the dependencies, and not the package."""
    made = tmp_path_factory.mktemp("bare") / "env"
    new_environment(made)
    return made


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment that has the package from the wheel."""
    made = tmp_path_factory.mktemp("equipped") / "env"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(new_environment(made))
    return made


@pytest.fixture
def topic(kafka_topic: Topic, produce: Produce) -> str:
    made = kafka_topic(2)
    produce(made, [b"%d" % n for n in range(COUNT)], partition=[n % 2 for n in range(COUNT)])
    return made


def new_environment(directory: Path) -> Path:
    """Returns where its packages are. Those of the Python that runs the tests are seen, but not what is installed `--editable`."""
    ran([sys.executable, "-m", "venv", "--without-pip", str(directory)], directory.parent)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return packages


def clean(**variables: str) -> dict[str, str]:
    """This process's environment without what says where packages are."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    return {**kept, **variables}


def ran(command: list[str], directory: Path, **variables: str) -> str:
    """Runs a command; returns its standard output once it has ended well."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=clean(**variables),
        capture_output=True,
        text=True,
        timeout=slow_s(300),
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return done.stdout


def spark_home(directory: Path) -> Path:
    """PySpark's distribution at a place where a cluster may write."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    made = directory / "spark"
    made.mkdir()
    for name in ("bin", "sbin", "jars", "python"):
        (made / name).symlink_to(Path(found.origin).parent / name)
    return made


def test_the_bare_environment_has_not_got_the_package(bare: Path, tmp_path: Path) -> None:
    """Without this the others show nothing."""
    command = [str(bare / "bin" / "python"), "-c", "import pyspark, ray, msgspec, kafka_actors"]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean(), capture_output=True, text=True, timeout=slow_s(60), check=False
    )
    assert "No module named 'kafka_actors'" in done.stderr


@pytest.mark.spark
def test_an_archive_brings_it_to_executors(
    equipped: Path, topic: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Two executors, processes of their own with directories of their own."""
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(equipped, ".")
    with tarfile.open(tmp_path / "env.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="fully_trusted")
    (tmp_path / "app.py").write_text(ARCHIVE)
    home = spark_home(tmp_path)
    said = ran(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local-cluster[2,1,600]", "--archives", "env.tar.gz#environment"),
            *("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"),
            *("app.py", kafka_cluster.bootstrap_servers, topic),
        ],
        tmp_path,
        PYSPARK_PYTHON="./environment/bin/python",
        SPARK_HOME=str(home),
        SPARK_LOCAL_IP="127.0.0.1",
    )
    rows = json.loads(said.splitlines()[-1])
    assert sum(row["rows"] for row in rows) == COUNT
    for row in rows:
        assert row["at"].startswith(f"{home}/work/app-"), "the executor's own directory"
        assert "/environment/lib/" in row["at"]


@pytest.mark.spark
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpcio")
def test_clients_of_a_connect_server_that_has_it_need_it_not(
    bare: Path, equipped: Path, topic: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    home = spark_home(tmp_path)
    port = free_ports(1)[0]
    start = ["bash", str(home / "sbin" / "start-connect-server.sh"), "--wait", "--master", "local[2]"]
    settings = {"spark.connect.grpc.binding.port": str(port), "spark.ui.enabled": "false"}
    variables = {
        "PYSPARK_PYTHON": str(equipped / "bin" / "python"),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(tmp_path / "logs"),
        "SPARK_PID_DIR": str(tmp_path / "pids"),
    }
    with (tmp_path / "said").open("w") as said:
        server = subprocess.Popen(
            [*start, *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))],
            cwd=tmp_path,
            env=clean(**variables),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        address = f"sc://127.0.0.1:{port}"  # the client tries until somebody is there
        client = [str(bare / "bin" / "python"), "-c", CLIENT, address]
        assert ran([*client, kafka_cluster.bootstrap_servers, topic], tmp_path).split() == [str(COUNT)]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(slow_s(30))


@pytest.mark.ray
def test_ray_carries_the_wheel_to_nodes_without_it(
    bare: Path, equipped: Path, wheel: Path, topic: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Ray has pip install the wheel; told to look for no dependencies, pip asks nobody."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (package,) = equipped.glob("lib/python*/site-packages")
    arguments = [str(package), str(wheel), kafka_cluster.bootstrap_servers, topic, str(notes)]
    ran(
        [str(bare / "bin" / "python"), "-c", JOB, *arguments],
        tmp_path,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        PIP_NO_DEPS="1",
        PIP_NO_INDEX="1",
        RAY_worker_niceness="0",
    )
    lines = [line.split() for note in notes.iterdir() for line in note.read_text().splitlines()]
    assert sum(int(rows) for rows, _ in lines) == COUNT
    assert all("/py_modules_files/" in at for _, at in lines)
    assert sum(kafka_cluster.committed(topic).values()) == COUNT
