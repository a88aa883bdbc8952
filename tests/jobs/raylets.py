"""A Ray cluster of a test's own with several nodes, each a raylet on this machine: `python -m jobs.raylets '{"nodes": [{…}]}'`.

The head has no room for workers; its raylet is the one that drivers of this machine join by its address. The process says
where the cluster is and ends it when its input ends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from waiting import slow_s, suspend


def main() -> None:
    from ray.cluster_utils import Cluster

    told = json.loads(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1, **options) for options in told["nodes"]]
        raylets = {node.node_id: node.all_processes["raylet"][0].process.pid for node in nodes}
        print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


class Raylets:
    """Ray cluster of `main`, as a test starts, kills and freezes its nodes: one node for each of `nodes`, which are Ray's options for it. `variables` lead a driver
    there."""

    def __init__(self, directory: Path, nodes: Iterable[Mapping[str, Any]]) -> None:
        own = {
            "RAY_worker_niceness": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
        self._errors = (directory / "raylets.log").open("w+")
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobs.raylets", json.dumps({"nodes": list(nodes)})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **own, "PYTHONPATH": path},
        )
        assert self._process.stdout is not None
        said = "\n"
        while said and not said.startswith("{"):
            said = self._process.stdout.readline()
        if not said:
            self._errors.seek(0)
            raise AssertionError("the Ray cluster did not start\n" + self._errors.read()[-3000:])
        answer = json.loads(said)
        self._raylets: dict[str, int] = answer["raylets"]
        self._frozen: list[psutil.Process] = []
        self.variables = {**own, "RAY_ADDRESS": answer["address"]}

    def kill(self, node: str) -> float:
        """SIGKILL to the raylet and all its processes. Returns when."""
        return self._signal(self._processes(node), signal.SIGKILL)

    def freeze(self, node: str) -> float:
        """SIGSTOP to the raylet and all its processes. Returns when."""
        self._frozen = self._processes(node)
        at = time.monotonic()
        for process in self._frozen:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                suspend(process.pid)
        return at

    def thaw(self) -> float:
        """SIGCONT to the processes that were frozen last."""
        frozen, self._frozen = self._frozen, []
        return self._signal(frozen, signal.SIGCONT)

    def _processes(self, node: str) -> list[psutil.Process]:
        raylet = psutil.Process(self._raylets[node])
        return [raylet, *raylet.children(recursive=True)]

    @staticmethod
    def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> float:
        at = time.monotonic()
        for process in processes:
            with suppress(psutil.Error):
                process.send_signal(number)
        return at

    def close(self) -> None:
        """Ends all of it."""
        self.thaw()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()  # Ray's processes see its end
            self._process.wait(slow_s(10))
        self._errors.close()


if __name__ == "__main__":
    main()
