"""The code of the documentation runs, each page in a process of its own; and the site is built, whole and by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pages.blocks import ADDRESS, ROOT, blocks_of, needs_of, pages, program_of, topics_of, variables_of
from waiting import slow_s

from kafka_actors.testing import FakeKafka

LIMIT_S = slow_s(200)
FOREIGN = re.compile(
    r'<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc(?:set)?="(?:https?:)?//[^"]*"'
    r'|<link\b[^>]*\bhref="(?:https?:)?//[^"]*"'
    r"|url\([\"']?(?:https?:)?//[^)]*\)"
    r"|@import\b[^;]*"
)


def programs(*, with_ray):
    for page in pages():
        if any(block.runs for block in blocks_of(page)) and ("ray" in needs_of(page)) == with_ray:
            words = ("kafka", "ray", "spark", "slow")
            marks = [getattr(pytest.mark, word) for word in words if word in needs_of(page)]
            yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@contextmanager
def brokers(page: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of what a page wants, with its topics; of a real cluster all that it has left is deleted."""
    if "kafka" in needs_of(page):
        cluster = request.getfixturevalue("kafka_cluster")
        with leaves_nothing(cluster.admin):
            for topic, partitions in topics_of(page).items():
                cluster.create_topic(topic, partitions)
            yield cluster.bootstrap_servers
    elif "broker" in needs_of(page):
        with FakeKafka(topics=topics_of(page)) as kafka:
            yield kafka.bootstrap_servers
    else:
        yield ADDRESS


@contextmanager
def leaves_nothing(admin) -> Iterator[None]:
    """Pages have the same names for their topics and groups."""

    def topics():
        return {name for name in admin.list_topics(timeout=slow_s(10)).topics if not name.startswith("__")}

    def groups():
        return {
            group.group_id for group in admin.list_consumer_groups(request_timeout=slow_s(10)).result().valid
        }

    topics_before, groups_before = topics(), groups()
    try:
        yield
    finally:
        answers = []
        if made := [*topics() - topics_before]:
            answers += admin.delete_topics(made).values()
        if joined := [*groups() - groups_before]:
            answers += admin.delete_consumer_groups(joined).values()
        for answer in answers:
            answer.result(slow_s(30))


@pytest.mark.parametrize("page", list(programs(with_ray=False)))
def test_the_code_of_a_page_runs(page, request, tmp_path):
    run(page, request, tmp_path)


@pytest.mark.parametrize("page", list(programs(with_ray=True)))
def test_the_code_of_a_page_with_jobs_runs_in_a_ray_cluster_that_is_there(
    page, request, tmp_path, ray_local, monkeypatch
):
    import ray

    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    run(page, request, tmp_path)


def run(page, request, directory):
    with brokers(page, request) as servers:
        script = directory / f"page_{page.stem}.py"
        script.write_text(program_of(page, servers))
        environment = {
            **os.environ,
            **variables_of(page),
            "RAY_worker_niceness": "0",  # as for all jobs in tests: beside brokers they would starve
        }
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        said = f"{page}, by its own line numbers:\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said


@pytest.mark.kafka
@pytest.mark.ray
def test_the_commands_of_a_page_print_what_it_says(kafka_cluster, tmp_path, ray_local):
    """Its shell blocks, one after the other; the block behind each has the lines that it prints, in any order."""
    import ray

    page = ROOT / "docs" / "how-to" / "first-pipeline.md"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KAFKA_ACTORS_BOOTSTRAP_SERVERS": kafka_cluster.bootstrap_servers,
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "RAY_worker_niceness": "0",
    }
    blocks = blocks_of(page)
    printed, said = [], []
    with leaves_nothing(kafka_cluster.admin):
        for block, behind in zip(blocks, [*blocks[1:], None], strict=True):
            if block.language == "python":
                (tmp_path / "pipe.py").write_text(block.code)
            if block.language != "sh":
                continue
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", block.code],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            assert done.returncode == 0, f"{block}: {done.stdout}\n{done.stderr}"
            assert behind is not None
            assert behind.language == "text"
            printed.append(f"{block}: {sorted(done.stdout.splitlines())}")
            said.append(f"{block}: {sorted(behind.code.splitlines())}")
    assert printed == said
    assert said


def test_how_much_is_not_run():
    python = [block for page in pages() for block in blocks_of(page) if block.language == "python"]
    left_out = [block for block in python if not block.runs]
    said = ", ".join(f"{block} {block.reason}" for block in left_out)
    told = f"{len(left_out)} of {len(python)} blocks of the documentation are not run: {said}"
    warnings.warn(told, stacklevel=1)
    assert len(left_out) < len(python) / 3


@pytest.mark.slow
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
    built = {path: path.read_text() for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")}
    assert len(built) > 20
    foreign = {str(path): found for path, text in built.items() if (found := FOREIGN.findall(text))}
    assert foreign == {}
    for_tests = re.compile(r"runs with: |notest=|&lt;!--python|<!--python")
    assert [str(path) for path, text in built.items() if for_tests.search(text)] == []
