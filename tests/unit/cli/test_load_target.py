import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_actors.base.callables import constructed
from kafka_actors.cli import load_target as module
from kafka_actors.cli.command import LoadError, describe
from kafka_actors.cli.load_target import load_target
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.ray import Job

JOB = """
import kafka_actors as ka

class BadOrder(Exception):
    pass

def process(batch):
    raise BadOrder

def make():
    return ka.Job(topics=["orders"], group_id="g", bootstrap_servers="localhost:9092", process=process)

class Jobs:
    eu = make()

job = make()
number = 7
"""
PIPELINES = """
import kafka_actors as ka
from kafka_actors.backfill import Backfill

read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="localhost:9092")

def enriched(batch):
    return batch

orders = read.raw().map_batches(enriched, schema="key BINARY, value BINARY").write_kafka("scored")

def on_ray():
    return orders.on_ray(workers=3)

def on_spark():
    return orders.on_spark(None, checkpoint="/c")

history = object.__new__(Backfill)
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory; what a test imports from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("shop", "json_job_file", "broken", "helper")):
            del sys.modules[name]


def _write(directory: Path, name: str, text: str = JOB) -> None:
    (directory / name).write_text(text)


@pytest.mark.parametrize("name", ["job", "make", "Jobs.eu"])
@pytest.mark.parametrize("where", ["shop.py", "./shop.py", "shop"])
def test_a_job_or_a_function_that_returns_one_is_found_in_a_file_or_a_module(
    workplace: Path, where: str, name: str
) -> None:
    _write(workplace, "shop.py")
    job = load_target(f"{where}:{name}").found
    assert isinstance(job, Job)
    assert job.topics == ["orders"]


def test_functions_of_a_file_travel_by_value(workplace: Path) -> None:
    from ray import cloudpickle

    _write(workplace, "shop.py")
    job = load_target("shop.py:job").found
    packed = cloudpickle.dumps(job._spec.target)
    del sys.modules["shop"]  # as in a worker, where no such module exists
    sys.path[:] = [entry for entry in sys.path if entry != str(workplace)]
    process = cloudpickle.loads(packed)
    assert process.__globals__["BadOrder"].__name__ == "BadOrder"


def test_what_lies_beside_a_file_can_be_imported_here_and_in_workers(workplace: Path) -> None:
    place = workplace / "jobs"
    place.mkdir()
    _write(place, "helper_of_shop.py", "number = 3")
    _write(place, "shop.py", "import helper_of_shop\n" + JOB)
    assert isinstance(load_target("jobs/shop.py:job").found, Job)
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(place)


def test_a_file_named_like_a_module_of_python_does_not_replace_it(workplace: Path) -> None:
    import json

    _write(workplace, "json.py")
    assert isinstance(load_target("json.py:job").found, Job)
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (
            "shop.py",
            "'shop.py' is not the name of a job or pipeline: give path/to/file.py:name or module:name",
        ),
        (":job", "':job' is not the name of a job or pipeline"),
        ("none.py:job", "there is no file none.py"),
        ("none:job", "no module named 'none'"),
        ("shop.py:jbo", "shop.py:jbo: shop has no 'jbo'"),
        (
            "shop.py:number",
            "shop.py:number is an int: accepts a Job, a Pipeline, an OnRay or an OnSpark, or a function that returns one",
        ),
        (
            "shop.py:process",
            "shop.py:process() can't be called: missing a required argument: 'batch'; it has to be a function without "
            "arguments",
        ),
    ],
)
def test_what_names_no_job_is_wrong_usage(workplace: Path, target: str, says: str) -> None:
    _write(workplace, "shop.py")
    with pytest.raises(UsageError) as raised:
        load_target(target)
    assert says in describe(raised.value)


@pytest.mark.parametrize(
    ("name", "wanted", "engine", "kind"),
    [
        ("orders", None, "ray", "Pipeline"),
        ("orders", "ray", "ray", "Pipeline"),
        ("orders", "spark", "spark", "Pipeline"),
        ("on_ray", None, "ray", "OnRay"),
        ("on_spark", None, "spark", "OnSpark"),
        ("on_spark", "spark", "spark", "OnSpark"),
    ],
)
def test_a_pipeline_runs_on_ray_unless_it_says_otherwise_or_is_bound(
    workplace: Path, name: str, wanted: str | None, engine: str, kind: str
) -> None:
    pytest.importorskip("pyspark")
    _write(workplace, "shop.py", PIPELINES)
    loaded = load_target(f"shop.py:{name}", wanted)  # type: ignore[arg-type]
    assert (loaded.engine, type(loaded.found).__name__) == (engine, kind)
    from pyspark import cloudpickle

    if engine == "spark":
        cloudpickle.dumps(loaded.found.pipeline if kind == "OnSpark" else loaded.found)
        assert "shop" in cloudpickle.list_registry_pickle_by_value()


@pytest.mark.parametrize(
    ("text", "name", "wanted", "says"),
    [
        (
            JOB,
            "job",
            "spark",
            "engine: is 'spark', and shop.py:job is a Job, which runs on Ray: give a Pipeline",
        ),
        (
            PIPELINES,
            "on_ray",
            "spark",
            "engine: is 'spark', and shop.py:on_ray is an OnRay, which runs on Ray",
        ),
        (
            PIPELINES,
            "on_spark",
            "ray",
            "engine: is 'ray', and shop.py:on_spark is an OnSpark, which runs on Spark",
        ),
        (
            PIPELINES,
            "history",
            None,
            "shop.py:history is a Backfill: accepts a Job, a Pipeline, an OnRay or an OnSpark",
        ),
    ],
)
def test_another_engine_or_another_kind_of_object_is_named_in_one_line(
    workplace: Path, text: str, name: str, wanted: str | None, says: str
) -> None:
    pytest.importorskip("pyspark")
    _write(workplace, "shop.py", text)
    with pytest.raises((ConfigError, UsageError)) as raised:
        load_target(f"shop.py:{name}", wanted)  # type: ignore[arg-type]
    assert describe(raised.value).startswith(says)


@pytest.mark.parametrize(
    ("wanted", "missing", "says"),
    [
        (None, "ray", "a job runs on Ray, which is not installed: pip install 'kafka-actors[ray]'"),
        (
            "spark",
            "pyspark",
            "the engine 'spark' is PySpark, which is not installed: pip install 'kafka-actors[spark]'",
        ),
    ],
)
def test_an_engine_that_is_not_installed_is_named_with_its_extra(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, wanted: str | None, missing: str, says: str
) -> None:
    _write(workplace, "shop.py", PIPELINES)

    def needs(name: str, extra: str, what: str) -> None:
        assert name == missing
        raise UsageError(f"{what}: pip install 'kafka-actors[{extra}]'")

    monkeypatch.setattr(module, "needs", needs)
    with pytest.raises(UsageError) as raised:
        load_target("shop.py:orders", wanted)  # type: ignore[arg-type]
    assert describe(raised.value) == says


@pytest.mark.parametrize("where", ["broken.py", "broken"])
def test_an_error_of_the_users_module_names_file_line_and_cause(workplace: Path, where: str) -> None:
    _write(workplace, "broken.py", "import os\n\nundefined_name\n")
    with pytest.raises(LoadError) as raised:
        load_target(f"{where}:job")
    assert describe(raised.value) == (
        f"{where} could not be loaded (broken.py, line 3): NameError: name 'undefined_name' is not defined"
    )


def test_a_script_that_ends_itself_is_an_error_of_the_users_module(workplace: Path) -> None:
    _write(workplace, "broken.py", "import sys\nsys.exit('no configuration')\n")
    with pytest.raises(LoadError) as raised:
        load_target("broken.py:job")
    assert describe(raised.value).endswith("(broken.py, line 2): SystemExit: no configuration")


def test_a_module_missing_inside_the_users_module_is_not_taken_for_a_wrong_target(workplace: Path) -> None:
    _write(workplace, "broken.py", "import no_such_library\n")
    with pytest.raises(LoadError, match=r"broken could not be loaded"):
        load_target("broken:job")


def test_a_wrong_option_in_the_definition_comes_as_it_is(workplace: Path) -> None:
    _write(workplace, "shop.py", JOB.replace('group_id="g"', 'group_id="g", config={"sesion_timeout_ms": 1}'))
    with pytest.raises(ConfigError, match="did you mean 'session_timeout_ms'"):
        load_target("shop.py:job")


def test_an_import_that_fails_is_told_by_the_line_that_imports(workplace: Path) -> None:
    _write(workplace, "shop.py", "import os\nimport no_such_module_at_all\n")
    with pytest.raises(LoadError) as failed:
        load_target("shop.py:job")
    assert describe(failed.value) == (
        "shop.py could not be loaded (shop.py, line 2): ModuleNotFoundError: No module named 'no_such_module_at_all'"
    )


def test_a_file_that_is_no_python_is_told_by_its_line(workplace: Path) -> None:
    _write(workplace, "shop.py", "import os\njob = = 3\n")
    with pytest.raises(LoadError) as failed:
        load_target("shop.py:job")
    said = describe(failed.value)
    assert said.startswith("shop.py could not be loaded (shop.py, line 2): SyntaxError: ")
    assert "frozen" not in said


def test_what_a_constructor_raised_is_told_with_its_place() -> None:
    class Model:
        def __init__(self) -> None:
            raise OSError("no weights")

    line = Model.__init__.__code__.co_firstlineno + 1
    with pytest.raises(OSError, match="no weights") as failed:
        constructed(Model, {})
    assert describe(failed.value) == (
        f"OSError: no weights (raised by the constructor of Model (test_load_target.py, line {line}))"
    )
