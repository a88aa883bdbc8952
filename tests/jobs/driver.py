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

from waiting import slow_s, until, until_ended


def main() -> None:
    import kafka_actors as ka

    from .journal import Journal
    from .scene import recorder, travel_by_value

    told = json.loads(sys.argv[1])
    travel_by_value()
    if (ledger := told["ledger"]) is not None:
        from .ledger import copier

        more = {"process": copier(told["journal"]), "sink": ka.KafkaSink(**ledger)}
    else:
        more = {"process": recorder(Journal(Path(told["journal"])), **told["recorder"])}
    with ka.Job(**more, **told["job"]).start() as running:
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
    """Process of `main`, as a test starts, asks and ends it."""

    def __init__(
        self,
        journal: Path,
        job: dict[str, Any],
        variables: Mapping[str, str] | None = None,
        ledger: dict[str, Any] | None = None,
        **recorder: float,
    ) -> None:
        import ray

        told = {"journal": str(journal), "job": job, "recorder": recorder, "ledger": ledger}
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
        self.actors = self._line("{", 0, seconds, "the driver's job to start")
        return self

    def ask(self, scale: int | None = None, seconds: float = 20.0) -> dict[str, Any]:
        """Returns the present status of its job; `scale` sets the number of workers first."""
        assert self.process.stdin is not None
        known = len(self.said)
        self.process.stdin.write("status\n" if scale is None else f"{scale}\n")
        self.process.stdin.flush()
        found: dict[str, Any] = self._line('{"asked"', known, seconds, "the driver to say how its job is")[
            "asked"
        ]
        return found

    def _line(self, begins: str, known: int, seconds: float, what: str) -> dict[str, Any]:
        """Waits for a line with JSON that begins so, behind the first `known` ones; fails where the driver ends before."""

        def lines() -> list[str]:
            assert self.process.poll() is None, self.log()
            return [line for line in self.said[known:] if line.startswith(begins)]

        until(lines, seconds, what, shown=self.log)
        found: dict[str, Any] = json.loads(lines()[0])
        return found

    def log(self) -> str:
        """The end of what the driver and its actors wrote to standard error."""
        return "".join(self.complained)[-6000:]

    def send(self, number: signal.Signals) -> float:
        at = time.monotonic()
        self.process.send_signal(number)
        return at

    def wait(self, seconds: float) -> int:
        """Waits for its end; returns the exit code. Fails after `seconds` of a quiet machine with its log."""
        return until_ended(self.process, seconds, self.log)

    def workers(self) -> set[int]:
        return {pid for name, pid in self.actors.items() if name.startswith("worker")}

    def left(self) -> set[int]:
        """Returns the processes of those first actors that still exist."""
        return {pid for pid in self.actors.values() if exists(pid)}

    def close(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
        self.process.wait(slow_s(10))


def exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline") as cmdline:
            return "ray::" in cmdline.read()
    except OSError:
        return False


if __name__ == "__main__":
    main()
