"""The files of a release say what the repository says; `make dist` builds and tries the rest."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import release

import assignors
import kafka_actors

ROOT = release.ROOT
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of a copy of what git has: building leaves files among the sources."""
    if not (ROOT / ".git").exists():
        pytest.skip("the files are not those of a repository")
    directory = tmp_path_factory.mktemp("sdist")
    release.copy_tracked(ROOT, directory / "sources")
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(directory)!r})"
    subprocess.run(
        [sys.executable, "-c", build], cwd=directory / "sources", check=True, capture_output=True, text=True
    )
    (made,) = directory.glob("*.tar.gz")
    return made


def test_an_sdist_has_what_the_repository_has(sdist: Path) -> None:
    files = release.tracked(ROOT)
    assert release.sdist_problems(sdist, files) == []
    assert release.sdist_problems(sdist, {*files, "new.txt"} - {"CHANGELOG.md"}) == [
        "new.txt is not in the sdist",
        "CHANGELOG.md is in the sdist and not in the repository",
    ]


def test_its_metadata_is_complete_and_its_description_has_links_that_work_elsewhere(sdist: Path) -> None:
    found = release.metadata(sdist)
    assert release.metadata_problems(found) == []
    version, source = PYPROJECT["project"]["version"], PYPROJECT["project"]["urls"]["Source"]
    text = str(found.get_payload())
    assert f"]({source}/blob/v{version}/docs/tutorial.md)" in text
    assert f"]({source}/raw/v{version}/benchmarks/results/baseline.svg)" in text
    found.replace_header("Summary", "")
    found.set_payload(text + "\n[a page](docs/index.md)")
    assert release.metadata_problems(found) == ["no Summary", "a link to docs/index.md"]


def test_one_version_is_in_all_places() -> None:
    version = PYPROJECT["project"]["version"]
    assert kafka_actors.__version__ == version
    assert re.search(
        rf"^## (Unreleased \({re.escape(version)}\)|{re.escape(version)}) *",
        (ROOT / "CHANGELOG.md").read_text(),
        re.M,
    )


def test_the_urls_are_of_one_repository() -> None:
    urls = PYPROJECT["project"]["urls"]
    assert {url for url in urls.values() if not url.startswith(urls["Source"])} == set()


def test_a_classifier_is_of_a_python_on_which_the_suite_ran() -> None:
    """The page of compatibility has a table of Pythons; those with "yes" have a classifier, and no others."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    ran = re.findall(r"^\| (3\.\d+) \| yes", page, re.MULTILINE)
    prefix = "Programming Language :: Python :: 3."
    named = [c for c in PYPROJECT["project"]["classifiers"] if c.startswith(prefix)]
    assert named == [f"{prefix}{version.partition('.')[2]}" for version in ran]
    assert ran[0] == PYPROJECT["project"]["requires-python"].removeprefix(">=")


def test_assignors_says_what_it_is() -> None:
    assert "part of kafka-actors" in (assignors.__doc__ or "")


LOCK = ROOT / "requirements-dev.lock"


def test_the_lock_file_has_what_the_extras_ask_for_and_no_host_of_a_registry() -> None:
    text = LOCK.read_text()
    assert re.findall(r"https?://\S+|--(?:extra-)?index-url|--find-links", text) == []
    locked = {
        name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==", text, re.M)
    }
    project = PYPROJECT["project"]
    asked = [
        *project["dependencies"],
        *(d for e in ("dev", "dist") for d in project["optional-dependencies"][e]),
    ]
    names = {re.split(r"[^\w.-]", each, maxsplit=1)[0].lower().replace("_", "-") for each in asked}
    assert names - {"kafka-actors"} - locked == set()
