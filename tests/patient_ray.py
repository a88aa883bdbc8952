"""Time for Rays that start beside other tests: `be_patient` gives it to those of this process, `environment` to those of its children.

A raylet ends itself that can't read the ports of its agents within 15 s, and `ray.init` gives up after 30, both constants of Ray's: on a busy
machine, importing what the agents import takes that long. `site/sitecustomize.py` makes each Python process patient that imports Ray. Some of
them have Ray and nothing else, so this module imports the standard library alone.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atomic_files import write_atomically

PATIENCE_S = 300.0
"""The longest wait for a raylet: ten times Ray's own."""
_PORTS_OF_DASHBOARD_AGENT = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port")
_UNUSED = -1
"""Port that the dashboard's agent writes where what it needs for its ports isn't installed. A raylet that gets a port looks for 30 s for somebody
behind it, and then says on all screens that there is nobody."""


def environment() -> dict[str, str]:
    """The variables by which each Python process that gets them, and all that it starts, is patient, and so are raylets with their agents."""
    path = [str(Path(__file__).with_name("site")), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "RAY_agent_register_timeout_ms": f"{PATIENCE_S * 1000:.0f}",
    }


def be_patient(services: Any) -> None:
    """Makes `services`, which is the module `ray._private.services`, patient, if it isn't yet."""
    if services.get_node.__module__ == __name__:
        return
    services.start_raylet = _with_ports_of_agents(services.start_raylet)
    services.get_node = _patiently(services.get_node)


def _with_ports_of_agents(start_raylet: Callable[..., Any]) -> Callable[..., Any]:
    """Chooses the ports of a raylet's agents, and writes them where the agents do when they are up."""
    named = inspect.signature(start_raylet)

    def start(*args: Any, **more: Any) -> Any:
        from ray._private.utils import get_dashboard_dependency_error

        from kafka_actors.testing.node import free_ports

        bound = named.bind(*args, **more)
        names = ["runtime_env_agent_port", *_PORTS_OF_DASHBOARD_AGENT]
        unused = _PORTS_OF_DASHBOARD_AGENT if get_dashboard_dependency_error() else ()
        for name, port in zip(names, free_ports(len(names)), strict=True):
            if name in unused:
                port = _UNUSED
            else:
                bound.arguments[name] = port
            file = f"{name}_{bound.arguments['node_id']}"
            write_atomically(Path(bound.arguments["session_dir"], file), str(port))
        return start_raylet(*bound.args, **bound.kwargs)

    return start


def _patiently(get_node: Callable[..., Any]) -> Callable[..., Any]:
    """Waits for a node's raylet."""

    def wait_for_node(*args: Any, **more: Any) -> Any:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return get_node(*args, **more)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    return wait_for_node
