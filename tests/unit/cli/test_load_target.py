import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_actors.base.callables import constructed
from kafka_actors.cli.command import LoadError, describe
from kafka_actors.cli.load_job import load_job
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
    job = load_job(f"{where}:{name}")
    assert isinstance(job, Job)
    assert job.topics == ["orders"]


def test_functions_of_a_file_travel_by_value(workplace: Path) -> None:
    from ray import cloudpickle

    _write(workplace, "shop.py")
    job = load_job("shop.py:job")
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
    assert isinstance(load_job("jobs/shop.py:job"), Job)
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(place)


def test_a_file_named_like_a_module_of_python_does_not_replace_it(workplace: Path) -> None:
    import json

    _write(workplace, "json.py")
    assert isinstance(load_job("json.py:job"), Job)
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop.py", "'shop.py' is not the name of a job: give path/to/file.py:name or module:name"),
        (":job", "':job' is not the name of a job"),
        ("none.py:job", "there is no file none.py"),
        ("none:job", "no module named 'none'"),
        ("shop.py:jbo", "shop.py:jbo: shop has no 'jbo'"),
        ("shop.py:number", "shop.py:number is an int, not a Job or a function that returns one"),
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
        load_job(target)
    assert says in describe(raised.value)


@pytest.mark.parametrize("where", ["broken.py", "broken"])
def test_an_error_of_the_users_module_names_file_line_and_cause(workplace: Path, where: str) -> None:
    _write(workplace, "broken.py", "import os\n\nundefined_name\n")
    with pytest.raises(LoadError) as raised:
        load_job(f"{where}:job")
    assert describe(raised.value) == (
        f"{where} could not be loaded (broken.py, line 3): NameError: name 'undefined_name' is not defined"
    )


def test_a_script_that_ends_itself_is_an_error_of_the_users_module(workplace: Path) -> None:
    _write(workplace, "broken.py", "import sys\nsys.exit('no configuration')\n")
    with pytest.raises(LoadError) as raised:
        load_job("broken.py:job")
    assert describe(raised.value).endswith("(broken.py, line 2): SystemExit: no configuration")


def test_a_module_missing_inside_the_users_module_is_not_taken_for_a_wrong_target(workplace: Path) -> None:
    _write(workplace, "broken.py", "import no_such_library\n")
    with pytest.raises(LoadError, match=r"broken could not be loaded"):
        load_job("broken:job")


def test_a_wrong_option_in_the_definition_comes_as_it_is(workplace: Path) -> None:
    _write(workplace, "shop.py", JOB.replace('group_id="g"', 'group_id="g", config={"sesion_timeout_ms": 1}'))
    with pytest.raises(ConfigError, match="did you mean 'session_timeout_ms'"):
        load_job("shop.py:job")


def test_an_import_that_fails_is_told_by_the_line_that_imports(workplace: Path) -> None:
    _write(workplace, "shop.py", "import os\nimport no_such_module_at_all\n")
    with pytest.raises(LoadError) as failed:
        load_job("shop.py:job")
    assert describe(failed.value) == (
        "shop.py could not be loaded (shop.py, line 2): ModuleNotFoundError: No module named 'no_such_module_at_all'"
    )


def test_a_file_that_is_no_python_is_told_by_its_line(workplace: Path) -> None:
    _write(workplace, "shop.py", "import os\njob = = 3\n")
    with pytest.raises(LoadError) as failed:
        load_job("shop.py:job")
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
        f"OSError: no weights (raised by the constructor of Model (test_load_job.py, line {line}))"
    )
