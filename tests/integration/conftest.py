"""Fixtures of integration tests. Real clusters are shared, one set a process: see `kafka_actors.testing.plugin`."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import patient_ray
import pytest
from fakes.prometheus import MISSING
from spark_home import spark_environment
from waiting import slow_s, until

from kafka_actors.testing.produce import Produce

os.environ.update(patient_ray.environment())
if find_spec("pyspark") is not None:
    os.environ.pop("SPARK_SUBMIT_OPTS", None)  # of another PySpark, where these tests are run by a test
    os.environ.update(spark_environment())

_ON_A_BROKER = {"kafka_topic", "produce"}
"""Fixtures that go to `cluster` in tests that ask for it, and else to a real broker."""
_REAL_KAFKA = {"kafka_cluster", "kafka_cluster_3", "secure"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Has tests with `cluster` run where `--kafka` says."""
    chosen = metafunc.config.getoption("--kafka")
    if chosen is not None and "cluster" in metafunc.fixturenames:
        metafunc.parametrize("cluster", ["real"] if chosen == "real" else ["fake", "real"], indirect=True)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Any:
    """The broker of a test that runs on any: a `FakeKafka` of its own, or the session's `KafkaCluster` where the test is marked `kafka` or
    `--kafka` asks for it."""
    chosen = getattr(request, "param", None)
    if request.node.get_closest_marker("kafka") is None:
        return request.getfixturevalue("kafka_cluster" if chosen == "real" else "fake_kafka")
    if chosen == "fake":
        pytest.skip("this is tried on a real broker only")
    return request.getfixturevalue("kafka_cluster")


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_topic: Callable[..., str]) -> Callable[..., str]:
    """The plugin's, on `cluster` in tests that ask for it."""
    if "cluster" not in request.fixturenames:
        return kafka_topic
    of_the_test = request.getfixturevalue("cluster")
    return lambda *partitions, **more: kafka_topic(*partitions, **{"cluster": of_the_test, **more})


@pytest.fixture
def produce(request: pytest.FixtureRequest, produce: Any) -> Any:
    """The plugin's, on `cluster` in tests that ask for it."""
    if "cluster" not in request.fixturenames:
        return produce
    return Produce(request.getfixturevalue("cluster").bootstrap_servers)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests with a real cluster `kafka`, so that `-m "not kafka"` leaves what runs without Java."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if _REAL_KAFKA & names or (_ON_A_BROKER & names and "cluster" not in names):
            item.add_marker(pytest.mark.kafka)


_THREADS_OF_CLIENTS = ("fetch-", "kafka-consumer", "kafka-producer", "kafka-admin")
_POOLS = {
    "kafka_actors.spark.source.task_reader": "sessions",
    "kafka_actors.spark.source.writers": "producers",
}
"""Pools in which a process of Spark keeps clients from task to task: module, and its attribute."""


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Fails a test that leaves threads of a client behind, an unclosed consumer's for one."""
    before = set(threading.enumerate())
    yield
    for module, pool in _POOLS.items():  # of tests that do in this process what Spark's workers do
        if module in sys.modules:
            getattr(sys.modules[module], pool).clear()

    def left() -> list[str]:
        return [t.name for t in set(threading.enumerate()) - before if t.name.startswith(_THREADS_OF_CLIENTS)]

    until(lambda: not left(), 20, "the end of threads", shown=left)


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that wants TLS and SASL, and the files for it: see `fakes.secure`."""
    from fakes.secure import secure_kafka

    with secure_kafka(tmp_path_factory.mktemp("secure")) as made:
        yield made


@pytest.fixture(params=["asyncio", "blocking"])
def ask(request: pytest.FixtureRequest) -> Callable[..., int]:
    """Asks over one of the two kinds of connection; returns the number of brokers."""
    from fakes.asking import over_connection, over_socket

    return {"asyncio": over_connection, "blocking": over_socket}[request.param]


@pytest.fixture
def topic(kafka_topic: Callable[..., str], produce: Callable[..., object]) -> str:
    """Topic with 12,000 records over 4 partitions, for tests that have none of their own."""
    name = kafka_topic(4)
    produce(name, [b"%d" % n for n in range(12_000)], partition=[n % 4 for n in range(12_000)])
    return name


@pytest.fixture
def promtool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Prometheus' own tool."""
    if shutil.which("promtool") is None:
        pytest.skip(MISSING)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=slow_s(60))

    return run


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, here and in the processes that the test starts. A shell has it ignored in what it runs in the
    background, and who is started by a process that ignores it does so too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def ray_local() -> Iterator[None]:
    """A Ray of our own for the session, whatever other clusters there are. Test code travels by value."""
    import ray
    from forked_python import fork_ray_workers
    from jobs.scene import travel_by_value
    from ray._private import services

    travel_by_value()
    fork_ray_workers()
    patient_ray.be_patient(services)
    # Ray starts workers at nice 15: beside brokers and test code on the same two cores they would starve.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, log_to_driver=True, logging_level="WARNING"
    )
    yield
    ray.shutdown()


@pytest.fixture
def scene(
    ray_local: None, kafka_cluster: Any, kafka_topic: Callable[..., str], group_id: str, tmp_path: Any
) -> Iterator[Any]:
    """A topic of 12 partitions on one broker, a group, and a journal: see `jobs.scene`. No broker is to be killed: see `scene_3`."""
    from jobs.scene import Scene

    with closing(Scene(kafka_cluster, kafka_topic(12), 12, group_id, tmp_path)) as made:
        yield made


@pytest.fixture
def scene_3(
    ray_local: None, kafka_cluster_3: Any, kafka_topic: Callable[..., str], group_id: str, tmp_path: Any
) -> Iterator[Any]:
    """A `scene` on three brokers, for tests of brokers, and of the actors that there is one of for each broker."""
    from jobs.scene import Scene

    topic = kafka_topic(12, cluster=kafka_cluster_3, replication_factor=3)
    with closing(Scene(kafka_cluster_3, topic, 12, group_id, tmp_path)) as made:
        yield made


@pytest.fixture
def filled(scene: Any, produce: Callable[..., object]) -> Any:
    """The scene, with 60 records in each partition."""
    numbers = range(12 * 60)
    servers = scene.cluster.bootstrap_servers
    where = [n % 12 for n in numbers]
    produce(scene.topic, [b"%d" % n for n in numbers], partition=where, bootstrap_servers=servers)
    return scene


@pytest.fixture
def no_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without notices and warnings of what takes long: how long it takes on a busy machine is no part of what a command prints."""
    for limit in ("cli.output.BLANK_S", "base.tasks.SILENT_S", "consumer.consumer_session.SILENT_S"):
        monkeypatch.setattr(f"kafka_actors.{limit}", 600.0)


@pytest.fixture
def run_job(ray_local: None, tmp_path: Any) -> Iterator[Callable[..., Any]]:
    """Starts `kafka-actors run` on the job that this text defines, in the session's Ray, with these arguments and these variables of
    telemetry, which no others are beside. What still runs at the end is killed."""
    import ray

    command = Path(sys.executable).with_name("kafka-actors")
    address = ray.get_runtime_context().gcs_address
    started: list[subprocess.Popen[str]] = []

    def run(job: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        (tmp_path / "work.py").write_text(job)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        settings = {"RAY_ADDRESS": address, "PYTHONFAULTHANDLER": "1", "KAFKA_ACTORS_START_TIMEOUT_S": "600"}
        process = subprocess.Popen(
            [command, "run", "work.py:job", *arguments],
            cwd=tmp_path,
            env={**clean, **settings, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
