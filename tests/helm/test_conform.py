"""Manifests of the chart against the schemas of Kubernetes and KubeRay."""

import re

import pytest
import yaml
from helm.chart import CHART, VERSIONS
from helm.matrix import MATRIX
from helm.tools import KUBERAY, NEW_KUBERAY, sources

OF_NEWER_KUBERAYS = {"a token"}
"""Values that ask for what the oldest KubeRay hasn't."""


@pytest.mark.parametrize("name", MATRIX)
@pytest.mark.parametrize(
    ("kubernetes", "kuberay"), [*zip(VERSIONS, (KUBERAY, NEW_KUBERAY), strict=True)], ids=VERSIONS
)
def test_each_object_is_as_its_definition_says(render, conform, name, kubernetes, kuberay):
    rendered = render(MATRIX[name], kubernetes=kubernetes)
    if name in OF_NEWER_KUBERAYS and kuberay == KUBERAY:
        assert "authOptions" in conform(rendered.text, kubernetes, kuberay)
    else:
        assert conform(rendered.text, kubernetes, kuberay) == ""


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_helm_finds_nothing_to_say_of_it(helm, values):
    options = ("--strict", "--quiet", "--kube-version", VERSIONS[-1], "--values", "-")
    helm("lint", *options, str(CHART), stdin=yaml.safe_dump(values))


def test_a_field_that_there_is_not_would_be_found(render, conform):
    """The check of the checks: at the root, deep in a pod template, and in Kubernetes' own resources."""
    rendered = render(MATRIX["least"])
    for kind, path in (
        ("RayJob", ["spec"]),
        ("RayJob", ["spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0]),
        ("ConfigMap", []),
    ):
        document = place = rendered.one(kind)
        for step in path:
            place = place[step]
        place["entrypiont"] = "x"
        assert "entrypiont" in conform(yaml.safe_dump(document), VERSIONS[-1])


def test_only_objects_of_its_own_and_no_definitions_of_others(render):
    kinds = {document["kind"] for values in MATRIX.values() for document in render(values).documents}
    assert kinds == {
        "ConfigMap",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PodMonitor",
        "PrometheusRule",
        "RayJob",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    }
    assert not (CHART / "crds").exists()
    assert "dependencies" not in yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_kuberays_resources_have_no_scale_for_keda(definitions):
    """docs/kubernetes/keda.md says so."""
    for file in (sources(KUBERAY) / "config" / "crd" / "bases").glob("*.yaml"):
        found = re.findall(r"^    subresources:\n((?:      .*\n)*)", file.read_text(), re.MULTILINE)
        assert set(found) == {"      status: {}\n"}, file.name
