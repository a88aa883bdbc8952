"""The code of the documentation runs, each page in a process of its own; and the site is built, whole and by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pages.blocks import ADDRESS, ROOT, blocks_of, needs_of, pages, program_of

from kafka_actors.testing import MockCluster

pytestmark = pytest.mark.timeout(240)

LIMIT_S = 200
FOREIGN = re.compile(
    r'<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc(?:set)?="(?:https?:)?//[^"]*"'
    r'|<link\b[^>]*\bhref="(?:https?:)?//[^"]*"'
    r"|url\([\"']?(?:https?:)?//[^)]*\)"
    r"|@import\b[^;]*"
)


def programs():
    for page in pages():
        if any(block.runs for block in blocks_of(page)):
            marks = [getattr(pytest.mark, word) for word in ("kafka", "ray", "spark") if word in needs_of(page)]
            yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@contextmanager
def brokers(needs: set[str], request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of what a page wants; of a real cluster, what the page made there is deleted for the next one."""
    if "kafka" in needs:
        cluster = request.getfixturevalue("kafka_cluster")
        with leaves_nothing(cluster.admin):
            yield cluster.bootstrap_servers
    elif "broker" in needs:
        with MockCluster(brokers=1) as mock:
            yield mock.bootstrap_servers
    else:
        yield ADDRESS


@contextmanager
def leaves_nothing(admin) -> Iterator[None]:
    def topics():
        return set(admin.list_topics(timeout=10).topics)

    def groups():
        return {group.group_id for group in admin.list_consumer_groups(request_timeout=10).result().valid}

    before = topics(), groups()
    yield
    made, joined = topics() - before[0], groups() - before[1]
    answers = [*admin.delete_topics([t for t in made if not t.startswith("__")]).values()] if made else []
    answers += [*admin.delete_consumer_groups([*joined]).values()] if joined else []
    for answer in answers:
        answer.result(30)


@pytest.mark.parametrize("page", programs())
def test_the_code_of_a_page_runs(page, request, tmp_path):
    with brokers(needs_of(page), request) as servers:
        script = tmp_path / f"page_{page.stem}.py"
        script.write_text(program_of(page, servers))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "PYSPARK_PYTHON": sys.executable,
            "RAY_worker_niceness": "0",  # as for all jobs in tests: beside brokers they would starve
        }
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    assert done.returncode == 0, f"{page}, by its own line numbers:\n{done.stdout}\n{done.stderr}"


def test_how_much_is_not_run():
    python = [block for page in pages() for block in blocks_of(page) if block.language == "python"]
    left_out = [block for block in python if not block.runs]
    said = ", ".join(f"{block} {block.reason}" for block in left_out)
    warnings.warn(f"{len(left_out)} of {len(python)} blocks of the documentation are not run: {said}", stacklevel=1)
    assert len(left_out) < len(python) / 3


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(built) > 20
    foreign = {str(path.relative_to(site)): FOREIGN.findall(path.read_text()) for path in built}
    assert {name: found for name, found in foreign.items() if found} == {}
    hidden = [path.name for path in built if "runs with:" in path.read_text() or "notest" in path.read_text()]
    assert hidden == []
