"""The chart's files beside its templates, and the image: what they say agrees with each other and with the package."""

import json
import re
import tomllib
from pathlib import Path

import yaml
from helm.chart import CHART
from helm.values_page import leaves, page, values

ROOT = CHART.parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = DOCKERFILE.split("\nFROM ")[1:]


def test_the_table_of_values_in_the_readme_is_that_of_the_file() -> None:
    readme = (CHART / "README.md").read_text()
    assert readme == page(readme, (CHART / "values.yaml").read_text()), "values changed: make docs-values"


def test_each_value_has_a_meaning_of_its_own_or_above_it() -> None:
    text = (CHART / "values.yaml").read_text()
    said = {value.path for value in values(text)}
    missing = [
        leaf
        for leaf in leaves(yaml.safe_load(text))
        if not any(leaf == path or leaf.startswith(path + ".") for path in said)
    ]
    assert missing == []


def test_the_schema_has_each_value_and_no_others() -> None:
    def known(schema: dict, value: object, path: str = "") -> list[str]:
        if not isinstance(value, dict) or "properties" not in schema:
            return []
        assert schema["additionalProperties"] is False, path
        unknown = [f"{path}.{key}" for key in value if key not in schema["properties"]]
        return unknown + [
            each
            for key, below in value.items()
            if key in schema["properties"]
            for each in known(schema["properties"][key], below, f"{path}.{key}")
        ]

    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert known(schema, defaults) == []
    assert schema["properties"].keys() - defaults.keys() == {"global"}  # Helm's own
    names = re.findall(r"^ *(\w+):", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert [name for name in names if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", name)] == []


def test_chart_image_and_package_are_of_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["version"]
    assert re.search(r'image\.version="(.*)"', DOCKERFILE)[1] == project["version"]
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert re.search(r"^ARG RAY_VERSION=(.*)$", DOCKERFILE, re.MULTILINE)[1] == defaults["rayVersion"]
    extras = re.search(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)[1].split(",")
    assert set(extras) <= project["optional-dependencies"].keys()
    python = tuple(map(int, re.search(r"^ARG PYTHON_VERSION=(.*)$", DOCKERFILE, re.MULTILINE)[1].split(".")))
    assert python >= tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))


def test_the_image_has_what_kuberay_calls_no_compiler_and_no_root() -> None:
    build, last = STAGES
    assert "gcc" in build
    installed = re.search(r"apt-get install --yes --no-install-recommends (.*?) *\\?\n", last)[1].split()
    assert {"bash", "wget"} <= set(installed)
    assert not [name for name in installed if re.search(r"gcc|g\+\+|clang|cmake|build-essential|-dev$", name)]
    assert re.findall(r"^COPY (.*)$", last, re.MULTILINE) == [
        "--from=build /opt/kafka-actors /opt/kafka-actors"
    ]
    pod = yaml.safe_load((CHART / "values.yaml").read_text())["podSecurityContext"]
    assert re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE).groups() == (
        str(pod["runAsUser"]),
        str(pod["runAsGroup"]),
    )


def test_what_the_image_is_made_of_is_what_the_wheel_needs() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    allowed = {name[1:] for name in ignored if name.startswith("!")}
    assert ignored[ignored.index("*") + 1] == "!pyproject.toml"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert allowed == {
        "pyproject.toml",
        "setup.py",
        "README.md",
        *project["project"]["license-files"],
        *packages,
    }
    assert all(Path(ROOT, name).exists() for name in allowed)
