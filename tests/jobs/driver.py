"""A driver to be killed, stopped and frozen: `python -m jobs.driver '{"journal": …, "job": {…}, "recorder": {…}}'`.

It joins the Ray cluster at RAY_ADDRESS, runs the job until it ends, and prints the process ids of its
actors once all are up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def main() -> None:
    import kafka_actors as ka

    from .journal import Journal
    from .scene import recorder, travel_by_value

    told = json.loads(sys.argv[1])
    travel_by_value()
    process = recorder(Journal(Path(told["journal"])), **told["recorder"])
    with ka.Job(process=process, **told["job"]).start() as running:
        actors: dict[str, int | None] = {"": None}
        while None in actors.values():
            actors = running.status().actors
        print(json.dumps(actors), flush=True)
        threading.Thread(target=answer, args=(running,), daemon=True).start()
        running.wait()


def answer(running: Any) -> None:
    """A line in, of which a number is that of workers there are to be; out what the tests want of the status."""
    for line in sys.stdin:
        if line.strip().isdigit():
            running.scale(int(line))
        status = running.status()
        said = {
            "asked": {
                "state": status.state,
                "generation": status.group.generation if status.group else None,
                "nodes": {a.name: a.node for a in [*status.workers, *status.others]},
                "pids": {a.name: a.pid for a in [*status.workers, *status.others]},
                "workers": {w.name: [list(p) for p in w.partitions] for w in status.workers},
                "holding": status.scaling.holding,
                "timeline": [entry.text for entry in status.timeline],
            }
        }
        print(json.dumps(said), flush=True)


class Driver:
    """The same, from the test's side."""

    def __init__(
        self,
        journal: Path,
        job: dict[str, Any],
        variables: Mapping[str, str] | None = None,
        **recorder: float,
    ) -> None:
        import ray

        told = {"journal": str(journal), "job": job, "recorder": recorder}
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobs.driver", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": path,
                **(variables or {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}),
            },
        )
        self.said: list[str] = []
        self.complained: list[str] = []
        self.actors: dict[str, int] = {}
        for pipe, lines in ((self.process.stdout, self.said), (self.process.stderr, self.complained)):
            threading.Thread(target=self._read, args=(pipe, lines), daemon=True).start()

    @staticmethod
    def _read(pipe: Any, lines: list[str]) -> None:
        lines.extend(pipe)

    @property
    def pid(self) -> int:
        return self.process.pid

    def started(self, seconds: float = 90.0) -> Driver:
        """Waits until its job runs."""
        deadline = time.monotonic() + seconds
        while not self.actors:
            for line in list(self.said):
                if line.startswith("{"):
                    self.actors = json.loads(line)
            assert self.process.poll() is None, "".join(self.complained)
            assert time.monotonic() < deadline, "the driver's job does not start\n" + "".join(self.complained)
            time.sleep(0.05)
        return self

    def ask(self, scale: int | None = None, seconds: float = 20.0) -> dict[str, Any]:
        """What its job's status is now; after it was told how many workers there are to be, if that is to change."""
        assert self.process.stdin is not None
        known, deadline = len(self.said), time.monotonic() + seconds
        self.process.stdin.write("status\n" if scale is None else f"{scale}\n")
        self.process.stdin.flush()
        while True:
            for line in self.said[known:]:
                if line.startswith('{"asked"'):
                    found: dict[str, Any] = json.loads(line)["asked"]
                    return found
            assert self.process.poll() is None, "".join(self.complained)
            assert time.monotonic() < deadline, "the driver does not say how its job is"
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> float:
        at = time.monotonic()
        self.process.send_signal(number)
        return at

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def workers(self) -> set[int]:
        return {pid for name, pid in self.actors.items() if name.startswith("worker")}

    def left(self) -> set[int]:
        """Which of the actors that it started with still exist."""
        return {pid for pid in self.actors.values() if exists(pid)}

    def close(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
        self.process.wait(10)


def exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline") as cmdline:
            return "ray::" in cmdline.read()
    except OSError:
        return False


if __name__ == "__main__":
    main()
