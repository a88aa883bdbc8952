"""Stands in for a Python process of Ray or Spark, and has one forked in its place: see `forked_python.py`. It imports little, since it runs for each."""

import json
import os
import signal
import socket
import sys
import time
import zlib

READ_BY_IMPORTS = ("RAY_", "PYTHON", "PYSPARK_", "SPARK_", "LD_", "OTEL_", "KAFKA_ACTORS_")
"""Prefixes of the variables that Ray, PySpark, Python or this package read when they are imported or start."""
READ_LATER = ("RAY_JOB_ID", "PYTHON_", "SPARK_JOB_", "SPARK_REUSE_WORKER", "SPARK_SIMPLIFIED_TRACEBACK")
"""Prefixes of those among them that differ between processes of one raylet or driver, and that no import reads."""
STARTED_IN_S = 120.0
"""Seconds in which the process that forks has to listen."""


def ask(kind: str, arguments: list[str]) -> None:
    """Has a process forked that does what this one was started for, and lives as long: Java closes the standard streams of a process that
    has ended. Its exit code isn't known here."""
    parent = os.getppid()
    request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    with _connected(f"{kind}-{parent}-{_of_environment():08x}", kind, parent) as connection:
        socket.send_fds(connection, [request], [0, 1, 2])
        connection.shutdown(socket.SHUT_WR)
        process = int(connection.recv(20) or 0)
        if not process:
            raise RuntimeError(f"what forks {kind}'s Python processes ended before it had forked this one")
        signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))
        while connection.recv(1):
            pass


def _of_environment() -> int:
    """Returns a number that is the same for processes that can be forked from one."""
    # Each directory once: Spark has those of PYTHONPATH twice at times.
    read = [
        (name, list(dict.fromkeys(value.split(os.pathsep))))
        for name, value in sorted(os.environ.items())
        if name.startswith(READ_BY_IMPORTS) and not name.startswith(READ_LATER)
    ]
    return zlib.crc32(json.dumps(read).encode())


def _connected(name: str, kind: str, parent: int) -> socket.socket:
    """Returns a connection to the process that forks, which it starts where nobody has."""
    until, started = time.monotonic() + STARTED_IN_S, False
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect("\0" + name)
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > until:
                raise
            if not started:
                _start(kind, name, parent)
                started = True
            time.sleep(0.02)
        else:
            return connection


def _start(kind: str, name: str, parent: int) -> None:
    import subprocess  # only the first of many needs it

    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forked_python.py")
    subprocess.Popen(
        [sys.executable, program, kind, name, str(parent)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":
    # Spark asks for modules, a raylet for a worker with options.
    ask("spark" if sys.argv[1] == "-m" else "ray", sys.argv[1:])
