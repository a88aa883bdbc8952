"""Imports of the package: which modules come when, in a process of its own."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from waiting import slow_s

import kafka_actors

BATCH = (
    "import sys\n"
    "import numpy as np\n"
    "import pyarrow as pa\n"
    "from kafka_actors.base import batches\n"
    "from kafka_actors.base.message import messages_of\n"
    "from kafka_actors.records import SCHEMA\n"
    "def column(field):\n"
    "    if pa.types.is_nested(field.type):\n"
    "        return pa.nulls(2, field.type)\n"
    "    if pa.types.is_binary(field.type) or pa.types.is_string(field.type):\n"
    "        parts = [None, pa.py_buffer(bytes(12)), pa.py_buffer(b'')]\n"
    "    else:\n"
    "        parts = [None, pa.py_buffer(bytes(16))]\n"
    "    return pa.Array.from_buffers(field.type, 2, parts)\n"
    "batch = pa.RecordBatch.from_arrays([column(field) for field in SCHEMA], schema=SCHEMA)\n"
)
"""Python that makes a batch of two records without `pa.array`, which imports pandas."""


@pytest.mark.parametrize(
    "code",
    [
        "assert len(list(messages_of(batch))) == 2",
        "assert batches.rows_of(batch, [1]).num_rows == 1",
        "assert batches.rows_where(batch, np.ones(2, bool)).num_rows == 2",
        "assert batches.copy_of(batch).num_rows == 2",
    ],
)
def test_the_first_records_do_not_wait_for_pandas_to_be_imported(code: str) -> None:
    """`to_numpy` and `pa.array` import it, in a third of a second or more."""
    check_absent(BATCH + code, "pandas")


def check_absent(code: str, names: str) -> None:
    """Checks that a process that runs `code` has imported none of these modules; a name with a dot in front is one of this package."""
    absent = [f"kafka_actors{name}" if name.startswith(".") else name for name in names.split()]
    assert [name for name in absent if importlib.util.find_spec(name) is None] == []
    code += f"\nimport sys; sys.exit(' '.join(name for name in {absent!r} if name in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=slow_s(60), capture_output=True)
    assert done.stderr.decode().strip() == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("actor", "not_needed"),
    [
        ("metadata", "numpy pyarrow .ray.job .consumer .group .fetch .records .sinks"),
        ("coordinator", "numpy pyarrow .ray.job .job.worker .consumer .fetch .records .sinks .producer"),
        ("connection", "pyarrow.compute .ray.job .consumer .group .fetch.fetcher .sinks"),
        ("worker", "pyarrow.compute .ray.job .consumer .group.consumer_coordinator .net.client .producer"),
    ],
)
def test_the_process_of_an_actor_does_not_wait_for_what_only_others_need(actor: str, not_needed: str) -> None:
    """Half a dozen of them start with a job, at the same time."""
    check_absent(f"import kafka_actors.ray.actors.{actor}_actor", not_needed)


def test_a_job_without_a_sink_does_not_wait_for_a_producer() -> None:
    check_absent(
        "import kafka_actors as ka; ka.Job(topics=['t'], group_id='g', bootstrap_servers='h:1', process=print)",
        "pyarrow.compute .producer .sinks.kafka .group.consumer_coordinator .net.client",
    )


def test_a_producer_does_not_wait_for_functions_of_arrow_that_few_use() -> None:
    check_absent("import kafka_actors as ka; ka.Producer; ka.KafkaSink", "pyarrow.compute pandas")


def test_sparks_source_waits_for_no_decoders_where_nothing_is_decoded() -> None:
    names = ("data_source", "stream_driver", "task_reader", "readers")
    modules = ", ".join(f"kafka_actors.spark.source.{name}" for name in names)
    check_absent(f"import {modules}", ".pipeline .schemas .registry")


@pytest.mark.parametrize("use", ["getattr(ka, name)", "importlib.import_module('uses_' + name)"])
@pytest.mark.parametrize("turn", range(3))
def test_threads_may_use_the_package_for_the_first_time_at_once(
    use: str, turn: int, tmp_path: pathlib.Path
) -> None:
    """Python breaks a deadlock of imports by handing out modules that aren't whole; without a lock one turn in three failed.
    Also where the threads import modules that import the package."""
    for name in kafka_actors.__all__:
        (tmp_path / f"uses_{name}.py").write_text(f"from kafka_actors import {name}\n")
    code = (
        "import importlib, sys, threading\n"
        f"sys.path.append({str(tmp_path)!r})\n"
        "sys.setswitchinterval(1e-6)\n"
        "import kafka_actors as ka\n"
        "names = [name for name in ka.__all__ if name not in vars(ka)]\n"
        "assert len(names) > 10\n"
        "together, wrong = threading.Barrier(len(names)), []\n"
        "def used(name):\n"
        "    together.wait()\n"
        "    try:\n"
        f"        {use}\n"
        "    except BaseException as error:\n"
        "        wrong.append(f'{name}: {error!r}')\n"
        "threads = [threading.Thread(target=used, args=(name,)) for name in names]\n"
        "for thread in threads:\n"
        "    thread.start()\n"
        "for thread in threads:\n"
        "    thread.join()\n"
        "sys.exit('\\n'.join(wrong) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=slow_s(60)
    )
    assert (done.returncode, done.stderr) == (0, "")
