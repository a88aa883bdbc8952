"""Helm, kubeconform, actionlint and the schemas of what the chart makes: `python tests/helm/tools.py` brings them into a cache.

Programs are built with Go from their modules; definitions of KubeRay's and Prometheus' resources are in modules, too;
those of Kubernetes' own come with the package kubernetes-validate.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kafka_actors.testing.distribution import cache_root, locked

HELM = ("helm.sh/helm/v3/cmd/helm", "v3.22.0")
ACTIONLINT = ("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12")
"""Checks the workflows of the repository; built here, because here is what builds programs with Go."""
KUBECONFORM = ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
KUBERAY = ("github.com/ray-project/kuberay/ray-operator", "v1.4.2")
"""The oldest that the chart is for."""
NEW_KUBERAY = ("github.com/ray-project/kuberay/ray-operator", "v1.6.0")
"""One that has all that the chart can ask for."""
PROMETHEUS = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")


class Missing(RuntimeError):
    """A tool that isn't there, and why."""


def program(module: tuple[str, str]) -> Path:
    """Path of a module's program once it is built."""
    path, version = module
    name = path.rpartition("/")[2]
    return cache_root() / "tools" / f"{name}-{version}" / name


def sources(module: tuple[str, str]) -> Path:
    """The files of a module, which Go keeps. Raises `Missing`."""
    path, version = module
    done = _go("mod", "download", "-json", f"{path}@{version}")
    return Path(json.loads(done)["Dir"])


def kubernetes_schemas() -> Path:
    """The JSON schemas of Kubernetes' own resources, one directory a version. Raises `Missing`."""
    found = importlib.util.find_spec("kubernetes_validate")
    if found is None or found.origin is None:
        raise Missing("the package kubernetes-validate isn't installed")
    return Path(found.origin).parent / "kubernetes-json-schema"


def install() -> None:
    """Builds what isn't there yet: minutes at first. Raises `Missing`."""
    for module in (ACTIONLINT, KUBECONFORM, HELM):
        made = program(module)
        made.parent.parent.mkdir(parents=True, exist_ok=True)
        with locked(made.parent.with_suffix(".lock")):
            if not made.exists():
                print(f"building {made.name} {module[1]} …", flush=True)
                _go("install", f"{module[0]}@{module[1]}", GOBIN=str(made.parent))
    for module in (KUBERAY, NEW_KUBERAY, PROMETHEUS):
        sources(module)


def _go(*arguments: str, **more: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise Missing("Go isn't installed, which builds Helm, kubeconform and actionlint")
    done = subprocess.run(
        [go, *arguments], capture_output=True, text=True, env={**os.environ, **more}, check=False
    )
    if done.returncode:
        raise Missing(f"go {' '.join(arguments)}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def main() -> int:
    try:
        install()
    except Missing as why:
        print(f"the tests of the Helm chart and of the workflows are skipped: {why}")
        # Where Go is, what can't be built is a failure of the run.
        return 1 if os.environ.get("CI") and shutil.which("go") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
