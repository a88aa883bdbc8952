"""Python processes of Ray and Spark, forked from one that has imported what they need.

A raylet starts each worker as `python default_worker.py …`, and Spark each of its Python processes as `python -m pyspark.…`. Importing Ray or
PySpark, Arrow and this package is nineteen twentieths of the CPU of such a process in a test: 2.1 s of 2.2 where this was measured, and a
job has six to ten of them. `fork_ray_workers` and `spark_python` have `ask_for_fork.py` started in their place: it asks a process that has
imported all that to fork, and the fork runs `default_worker.py` or the module, as they are, with the arguments, environment, directory and
standard streams that were given. The first request starts the process that forks, which ends with the raylet or driver that made the
request. There is one for each set of environment variables that imports read.

What a command starts has Ray's own: `ray start`, the demo, `kafka-actors run` without a cluster.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import sys
import zlib
from pathlib import Path

from atomic_files import write_atomically

IMPORTED = {
    "ray": (
        "pyarrow",
        "ray._private.workers.default_worker",
        "kafka_actors.ray.actors.connection_actor",
        "kafka_actors.ray.actors.coordinator_actor",
        "kafka_actors.ray.actors.job_actor",
        "kafka_actors.ray.actors.metadata_actor",
        "kafka_actors.ray.actors.worker_actor",
    ),
    "spark": (
        "pyarrow",
        "pyspark.worker",
        "pyspark.sql.worker.plan_data_source_read",
        "pyspark.sql.worker.write_into_data_source",
        "pyspark.sql.streaming.python_streaming_source_runner",
        "kafka_actors.spark.source.data_source",
        "kafka_actors.spark.source.readers",
        "kafka_actors.spark.source.writers",
    ),
}
"""Modules by who asks. None may draw a random id of Ray, as `ray.dag` does: its forks would all draw the same ones."""
LONGEST_PART = 1_000_000
"""Bytes of a request that are read at once."""
ASK = str(Path(__file__).resolve().with_name("ask_for_fork.py"))


def fork_ray_workers() -> None:
    """Has the raylets that this process starts from now on fork their workers."""
    from ray._private.parameter import RayParams

    make = RayParams.__init__

    def make_with_forks(self: RayParams, *arguments: object, **named: object) -> None:
        make(self, *arguments, **named)
        self.update_if_absent(worker_path=ASK)

    RayParams.__init__ = make_with_forks


def spark_python(directory: Path) -> str:
    """Returns a program, made in `directory` if it isn't there, to be Spark's Python: it forks what is started as `-m pyspark.…`."""
    python = shlex.quote(sys.executable)
    text = f'#!/bin/sh\n[ "$1" = -m ] || exec {python} "$@"\nexec {python} -S -E {shlex.quote(ASK)} "$@"\n'
    program = directory / f"python-{zlib.crc32(text.encode()):08x}"
    if not program.exists():
        write_atomically(program, text, mode=0o755)
    return str(program)


def _serve(kind: str, name: str, parent: int) -> None:
    """Forks a process for each request, until `parent` ends."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind("\0" + name)
        except OSError:  # another one that was started at once was first
            return
        # Requests wait until all is imported.
        listener.listen(128)
        ended = os.pidfd_open(parent)
        for module in IMPORTED[kind]:
            importlib.import_module(module)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([listener, ended], [], [])
            if ended in ready:
                return
            connection, _ = listener.accept()
            with connection:
                request, streams = _received(connection)
                if not (process := os.fork()):
                    os.close(ended)
                    listener.close()
                    connection.detach()  # is open as long as this process
                    _become(kind, *json.loads(request), streams)
                    return
                for stream in streams:
                    os.close(stream)
                connection.sendall(b"%d" % process)


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Returns the bytes of a request, and the standard streams that came with it."""
    request, streams = b"", []
    while True:
        part, files, _, _ = socket.recv_fds(connection, LONGEST_PART, 3)
        streams += files
        if not part:
            return request, streams
        request += part


def _become(
    kind: str, arguments: list[str], directory: str, environment: dict[str, str], streams: list[int]
) -> None:
    """Does in this process, a fork, what one with these arguments would do."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if kind == "spark":
        module = arguments[1]
        sys.argv = arguments[1:]
        sys.path[0] = directory
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        from ray._private.workers import default_worker

        os.setpgid(0, 0)
        script = default_worker.__file__
        sys.argv = [script, *arguments]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
