"""The chart, rendered by Helm as a user has it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm.chart import CHART, VERSIONS, Refused, Rendered
from helm.image import Images, missing
from helm.schemas import write_kubernetes, write_schemas
from helm.tools import (
    ACTIONLINT,
    HELM,
    KUBECONFORM,
    KUBERAY,
    NEW_KUBERAY,
    PROMETHEUS,
    Missing,
    kubernetes_schemas,
    program,
    sources,
)
from waiting import slow_s


def _there(path: Path) -> Path:
    if not path.exists():
        why = f"{path.name} isn't built: make test-helm"
        if os.environ.get("CI") and shutil.which("go"):
            pytest.fail(why)
        pytest.skip(why)
    return path


@pytest.fixture(scope="session")
def helm() -> Callable[..., str]:
    """Runs Helm; raises `Refused` with what it says."""
    found = _there(program(HELM))

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [found, *arguments], input=stdin, capture_output=True, text=True, timeout=slow_s(60), check=False
        )
        if done.returncode:
            raise Refused(done.stderr + done.stdout)
        return done.stdout

    return run


@pytest.fixture(scope="session")
def actionlint() -> Path:
    return _there(program(ACTIONLINT))


@pytest.fixture(scope="session")
def render(helm: Callable[..., str]) -> Callable[..., Rendered]:
    """`helm template` with these values."""

    def rendered(values: dict[str, Any], *, name: str = "scorer", kubernetes: str = "1.37.0") -> Rendered:
        arguments = ("--namespace", "streams", "--kube-version", kubernetes, "--values", "-")
        return Rendered(helm("template", name, str(CHART), *arguments, stdin=yaml.safe_dump(values)))

    return rendered


@pytest.fixture(scope="session")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON schemas of what the chart makes: custom resources, and below it a directory for each version of Kubernetes."""
    directory = tmp_path_factory.mktemp("definitions")
    try:
        for version in VERSIONS:
            write_kubernetes(kubernetes_schemas() / f"v{version}-local-strict", directory / f"v{version}")
        for kuberay in (KUBERAY, NEW_KUBERAY):
            (directory / kuberay[1]).mkdir()
            for file in (sources(kuberay) / "config" / "crd" / "bases").glob("*.yaml"):
                write_schemas(file, directory / kuberay[1])
        of_prometheus = sources(PROMETHEUS) / "example" / "prometheus-operator-crd"
    except Missing as why:
        pytest.skip(str(why))
    kinds = ("podmonitors", "servicemonitors", "prometheusrules")
    files = [of_prometheus / f"monitoring.coreos.com_{kind}.yaml" for kind in kinds]
    names = {name for file in files for name in write_schemas(file, directory)}
    assert {f"{kind.removesuffix('s')}_v1.json" for kind in kinds} <= names
    assert (directory / KUBERAY[1] / "rayjob_v1.json").exists()
    return directory


@pytest.fixture(scope="session")
def conform(definitions: Path) -> Callable[..., str]:
    """kubeconform, strictly: what it says of YAML that isn't as Kubernetes and KubeRay have it; "" if it is."""
    found = _there(program(KUBECONFORM))
    locations = (
        f"{definitions}/%s/{{{{ .ResourceKind }}}}_{{{{ .ResourceAPIVersion }}}}.json",
        f"{definitions}/{{{{ .ResourceKind }}}}_{{{{ .ResourceAPIVersion }}}}.json",
        f"{definitions}/{{{{ .NormalizedKubernetesVersion }}}}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json",
    )

    def check(text: str, version: str, kuberay: tuple[str, str] = NEW_KUBERAY) -> str:
        places = [location.replace("%s", kuberay[1]) for location in locations]
        arguments = [part for place in places for part in ("-schema-location", place)]
        done = subprocess.run(
            [found, "-strict", "-summary", "-kubernetes-version", version, *arguments, "-"],
            input=text,
            capture_output=True,
            text=True,
            timeout=slow_s(60),
            check=False,
        )
        assert " 0 resources found" not in done.stdout
        return done.stdout + done.stderr if done.returncode else ""

    return check


@pytest.fixture(scope="session")
def images() -> Iterator[Images]:
    """The image of the Dockerfile, as `kafka-actors`, in a store that is gone at the end. Building takes minutes."""
    if why := missing():
        pytest.skip(why)
    made = Images()
    try:
        made.make_base()
        made.build("kafka-actors")
        yield made
    finally:
        made.close()
