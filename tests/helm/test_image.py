"""The image of the Dockerfile, built, looked into, and run in the pods that the chart makes: `make test-image`."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helm.image import ROOT, Images
from helm.kubelet import HEAD, Pod, head_command, own_network, submit_command
from helm.matrix import JOB
from waiting import slow_s, until

from kafka_actors import __version__
from kafka_actors.testing import KafkaCluster
from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

Render = Callable[..., Any]

ENVIRONMENT = Path("opt/kafka-actors")
COUNT, PARTITIONS = 4_000, 4


@pytest.fixture(scope="module")
def files(images: Images) -> Iterator[Path]:
    """Files of a container of the image."""
    with images.mounted("kafka-actors") as mounted:
        yield mounted


@pytest.fixture
def pod(images: Images, files: Path, render: Render, tmp_path: Path) -> Pod:
    """The head's, as the chart has it by default."""
    rendered = render({"job": JOB})
    return Pod(files, images.config("kafka-actors"), rendered, rendered.head, tmp_path)


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


# ---------------------------------------------------------------- what is in it


def test_a_build_gets_what_git_has_of_the_packages_and_nothing_else(images: Images) -> None:
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    allowed = ("kafka_actors/", "assignors/", "pyspark_kafka_actors/")
    expected = {name for name in known.stdout.split() if name.startswith(allowed)}
    assert images.context() == expected | {"pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"}


def test_it_has_no_compiler_no_sources_and_no_installers_leavings(files: Path, pod: Pod) -> None:
    programs = {file.name for place in ("usr/bin", "usr/local/bin") for file in (files / place).iterdir()}
    compilers = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|clang|as|ld|make)(-[\d.]+)?|cc1.*|cython.*")
    assert [name for name in sorted(programs) if compilers.fullmatch(name)] == []
    assert "bash" in programs  # that there was something to look through
    assert [place for place in ("src", "wheels", "root/.cache") if (files / place).exists()] == []
    assert [*(files / "var/lib/apt/lists").glob("*_*")] == []


def test_pip_on_top_of_it_installs_where_ray_is(pod: Pod) -> None:
    """Ray wants pip there, too, for `pip` of a runtime environment: it makes a copy of the environment."""
    assert f"from /{ENVIRONMENT}/lib/" in said(pod.run("pip", "--version"))
    assert pod.run("pip", "check").stdout.strip() == "No broken requirements found."


def test_its_programs_run_as_a_user_who_may_write_nothing(pod: Pod) -> None:
    assert said(pod.run("id")).startswith("uid=1000(ray) gid=1000(ray)")
    assert said(pod.run("kafka-actors", "--version")).split() == ["kafka-actors", __version__]
    assert "Usage: kafka-actors" in said(pod.run("kafka-actors", "--help"))
    assert pod.rendered.spec["rayClusterSpec"]["rayVersion"] in said(pod.run("ray", "--version"))
    for program in ("bash", "wget", "ray"):
        assert pod.run("sh", "-c", f"command -v {program}").returncode == 0, program
    places = "/ /home/ray /opt/kafka-actors/bin /etc/kafka-actors/config /usr/local/bin"
    written = said(
        pod.run("sh", "-c", f"for d in {places}; do touch $d/x 2>/dev/null && echo $d; done; true")
    )
    assert written == ""
    assert pod.run("touch", "/tmp/x").returncode == 0


def test_a_login_shell_finds_its_programs_too(pod: Pod) -> None:
    """KubeRay starts Ray with one where its operator has ENABLE_LOGIN_SHELL."""
    assert said(pod.run("bash", "-lc", "command -v ray kafka-actors")).split() == [
        f"/{ENVIRONMENT}/bin/ray",
        f"/{ENVIRONMENT}/bin/kafka-actors",
    ]


def test_the_kernel_is_compiled_and_so_are_the_modules(files: Path, pod: Pod) -> None:
    """On a read-only root Python can't keep what it compiles: each process would do it again."""
    said(pod.run("python", "-W", "error", "-c", "import kafka_actors.records._kernel"))
    modules = [file for file in (files / ENVIRONMENT).rglob("*.py") if "site-packages" in file.parts]
    bare = [file for file in modules if not [*(file.parent / "__pycache__").glob(f"{file.stem}.*.pyc")]]
    assert len(modules) > 1_000
    assert [str(file) for file in bare if "kafka_actors" in file.parts or "ray" in file.parts] == []
    code = "import sys, ray, kafka_actors as ka; ka.Job; print(*sys.modules, sep='\\n')"
    done = pod.run("python", "-v", "-c", code)
    assert "kafka_actors.ray" in said(done)
    # `-v` names a file of byte code in quotes, and a source that had to be compiled without.
    assert re.findall(r"^# code object from [^'].*", done.stderr, re.MULTILINE) == []


def test_what_it_says_of_itself(images: Images) -> None:
    config = images.config("kafka-actors")
    assert config["User"] == "1000:1000"
    assert config["Cmd"] == ["kafka-actors", "--help"]
    labels = {
        name.rpartition(".")[2]: value for name, value in config["Labels"].items() if "opencontainers" in name
    }
    assert labels["version"] == __version__
    assert labels["title"] == "kafka-actors"
    assert labels["licenses"] == "Apache-2.0"


def test_the_extra_gssapi_finds_kerberos(images: Images, render: Render, tmp_path: Path) -> None:
    images.build("kafka-actors:gssapi", EXTRAS="ray,telemetry,gssapi")
    rendered = render({"job": JOB})
    with images.mounted("kafka-actors:gssapi") as files:
        pod = Pod(files, images.config("kafka-actors:gssapi"), rendered, rendered.head, tmp_path)
        said(
            pod.run(
                "python",
                "-c",
                "import gssapi; gssapi.Name('kafka@broker', gssapi.NameType.hostbased_service)",
            )
        )


# ---------------------------------------------------------------- a job in its pods


@pytest.fixture
def kafka() -> Iterator[KafkaCluster]:
    """A broker in a network where there is nothing else: the chart's ports are fixed, and another Ray may have them."""
    from kafka_actors.testing.distribution import DEFAULT_VERSION, Distribution, KafkaUnavailable
    from kafka_actors.testing.plugin import started

    try:
        Distribution.get(DEFAULT_VERSION)  # is fetched while there is a network
    except KafkaUnavailable as why:
        pytest.skip(str(why))
    with own_network():
        yield from started()


@pytest.mark.kafka
@pytest.mark.ray
@pytest.mark.parametrize("where", ["in a ConfigMap", "in the image"])
def test_a_job_of_the_chart_runs_is_well_and_drains(
    where: str, images: Images, files: Path, render: Render, kafka: KafkaCluster, tmp_path: Path
) -> None:
    group = "scorer"
    text = (ROOT / "examples" / "orders.py").read_text()
    job = {"file": text, "target": "orders.py:job"}
    if where == "in the image":
        job = {"target": "scoring.app:job"}
        (files / "home/ray/scoring").mkdir()
        (files / "home/ray/scoring/app.py").write_text(text)
    kafka.create_topic("orders", PARTITIONS)
    orders = [json.dumps({"country": "CH", "amount_cents": n}) for n in range(COUNT)]
    to = [n % PARTITIONS for n in range(COUNT)]
    Produce(kafka.bootstrap_servers)("orders", orders, partition=to)
    rendered = render(
        {
            "job": {**job, "workers": 2},
            "kafka": {"bootstrapServers": kafka.bootstrap_servers, "groupId": group},
            "head": {"rayStartParams": {"num-cpus": "0", "object-store-memory": "200000000"}},
            "status": {"enabled": True},
        }
    )
    config = images.config("kafka-actors")

    def pod(template: dict[str, Any], name: str) -> Pod:
        directory = tmp_path / name
        directory.mkdir()
        return Pod(files, config, rendered, template, directory)

    head = pod(rendered.head, "head")
    worker = pod(rendered.groups[0]["template"], "worker")
    submitter = pod(rendered.spec["submitterPodTemplate"], "submitter")
    log, of_job = tmp_path / "head.log", tmp_path / "job.log"

    def well(probe: str) -> bool:
        return head.run(*head.container[f"{probe}Probe"]["exec"]["command"]).returncode == 0

    parameters = rendered.spec["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]
    running = [head.start(*head_command(parameters), log=log)]
    try:
        until(lambda: well("readiness"), 120, "Ray isn't up")
        assert well("liveness")
        # KubeRay's init container of a worker's pod
        said(worker.run("/bin/bash", "-c", "--", f"ray health-check --address {HEAD}:6379"))
        running.append(submitter.start(*submit_command(rendered.spec["entrypoint"], "scorer-1"), log=of_job))
        until(lambda: sum(kafka.committed(group).values()) == COUNT, 120, "not all is committed")
        page = f"http://{HEAD}:{rendered.one('Service')['spec']['ports'][0]['targetPort']}"
        assert _get(f"{page}/status.json")["group_id"] == group
        assert well("readiness")
        assert well("liveness")
        said(head.run(*head.container["lifecycle"]["preStop"]["exec"]["command"], timeout=90))
        (submitted,) = _get(f"http://{HEAD}:8265/api/jobs/")
        assert submitted["status"] == "STOPPED"
        assert not kafka.describe_group(group).members
        running[1].wait(slow_s(60))  # the submitter, when the job's log ends
        assert "revenue of this worker" in of_job.read_text()
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()
        for each in (log, of_job):
            print(each.read_text()[-4_000:] if each.exists() else f"no {each.name}")


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=slow_s(10)) as answer:
        return json.load(answer)
