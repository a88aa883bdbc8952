"""A Ray cluster of a test's own whose GCS can be killed, stopped and started again: `python -m jobs.head`.

The process is Ray's head node. It prints the cluster's address, then does what it reads: `kill`, `start`.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from waiting import slow_s, suspend

STORED = {"RAY_gcs_storage": "rocksdb"}
"""Variables of a head whose GCS finds again what it knew: actors outlive it. Without them all ends with it."""


def main() -> None:
    import ray
    from ray._private import worker

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    node = worker._global_node
    print(node.gcs_address, flush=True)
    for line in sys.stdin:
        if line == "kill\n":
            node.kill_gcs_server()
        elif line == "start\n":
            node.start_gcs_server()
        print("done", flush=True)


class Head:
    """Head of Ray of `main`, as a test starts, freezes and kills its GCS. `directory` is for what its GCS stores; `variables` are of its environment and, with
    what leads to it, of those of its drivers."""

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        variables = {
            "RAY_worker_niceness": "0",
            "RAY_gcs_storage_path": str(directory / "gcs"),
            # Who joins has to know the token of a cluster, and this one is the test's own.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            **variables,
        }
        self._errors = (directory / "head.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobs.head"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={
                **os.environ,
                **variables,
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
                ),
            },
        )
        self.variables = {**variables, "RAY_ADDRESS": self._answer()}

    def kill_gcs(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._tell("kill")

    def start_gcs(self) -> None:
        """On the same port, with what it stored. Returns when it listens, or soon will."""
        self._tell("start")

    def stop_gcs(self) -> None:
        """SIGSTOP: its sockets stay open and nothing answers."""
        suspend(self._gcs.pid)

    def continue_gcs(self) -> None:
        """SIGCONT."""
        self._gcs.resume()

    @property
    def _gcs(self) -> psutil.Process:
        return next(p for p in self._children() if p.name() == "gcs_server")

    def actors(self, kind: str) -> set[int]:
        """The processes of live actors of this class."""
        found = set()
        for process in self._children():
            with suppress(psutil.Error):
                if " ".join(process.cmdline()).startswith(f"ray::{kind}"):
                    found.add(process.pid)
        return found

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self._errors.seek(0)
            raise AssertionError("the head of Ray ended\n" + self._errors.read()[-3000:])
        return line

    def close(self) -> None:
        """Ends Ray as its driver does at its end; by force if that takes long, as without a GCS."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)  # Ray's processes see its end
            self._process.wait(slow_s(10))
        self._errors.close()


if __name__ == "__main__":
    main()
