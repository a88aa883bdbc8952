"""The image of the Dockerfile, built with neither a container engine nor a registry.

buildah builds it, each step in a chroot. The base is made of Debian's packages by mmdebstrap, and has the name that the Dockerfile
asks for; its Python is Debian's. What the image holds is run by `helm.kubelet`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helm.chart import CHART

ROOT = CHART.parents[1]
PYTHON = "3.11"
"""Debian bookworm's."""

_PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "bwrap": "bubblewrap"}
_OF_PIP = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout")
_CAS = "/etc/ssl/cas-of-this-host.pem"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Failed(Exception):
    """Failure of a program, with what it said."""


def missing() -> str:
    """Why no image can be built here; "" if one can be."""
    absent = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if absent:
        return f"images are built with {', '.join(absent)}: apt-get install {' '.join(absent)}"
    return "images are built by root here" if os.geteuid() else ""


def ran(command: list[str], timeout: float) -> str:
    """Runs a command; returns its standard output once it has ended well, and raises `Failed` otherwise."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise Failed(f"{shlex.join(command)}\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
    return done.stdout


class Images:
    """buildah with a store of its own, gone with `close`."""

    def __init__(self) -> None:
        # Not in /tmp, which is memory on some machines: an image takes a gigabyte or two.
        self._directory = Path(tempfile.mkdtemp(prefix="kafka-actors-images-", dir="/var/tmp"))

    def __call__(self, *arguments: object, timeout: float = 60) -> str:
        stores = ["--root", str(self._directory / "images"), "--runroot", str(self._directory / "run")]
        return ran(["buildah", *stores, *map(str, arguments)], timeout)

    def make_base(self) -> None:
        """Makes the stand-in for `python:3.11-slim-bookworm`: Debian, and a `python` that has `venv`."""
        archive = self._directory / "base.tar"
        packages = "ca-certificates,python3-venv,python3-dev"
        python = 'ln -s /usr/bin/python3 "$1/usr/local/bin/python"'
        # A mirror may be one of a day in the past.
        dates = 'Acquire::Check-Valid-Until "false"'
        options = [f"--include={packages}", f"--customize-hook={python}", f"--aptopt={dates}"]
        ran(["mmdebstrap", "--quiet", "--variant=minbase", *options, "bookworm", str(archive)], 900)
        container = self("from", "scratch").strip()
        self("add", "--quiet", container, archive, "/", timeout=300)
        self("config", "--env", f"PATH={_PATH}", "--cmd", "python3", container)
        self(
            "commit",
            "--quiet",
            "--rm",
            container,
            f"docker.io/library/python:{PYTHON}-slim-bookworm",
            timeout=300,
        )
        archive.unlink()

    def build(self, tag: str, **arguments: str) -> None:
        """Builds the Dockerfile. pip gets what it is told on this machine: where packages are, whom to trust."""
        told = self._directory / "pip.conf"
        told.write_text(_pip_settings())
        volumes = {told: "/etc/pip.conf", _cas(): _CAS}
        options = [f"--volume={here}:{there}:ro" for here, there in volumes.items()]
        options += [
            f"--build-arg={name}={value}" for name, value in {"PYTHON_VERSION": PYTHON, **arguments}.items()
        ]
        self(
            "bud",
            "--isolation=chroot",
            "--pull-never",
            "--layers",
            *options,
            "--tag",
            tag,
            ROOT,
            timeout=1_500,
        )

    def context(self) -> set[str]:
        """The files that a build gets of the repository."""
        dockerfile = self._directory / "Dockerfile"
        dockerfile.write_text("FROM scratch\nCOPY . /\n")
        self("bud", "--isolation=chroot", "--file", dockerfile, "--tag", "context", ROOT)
        with self.mounted("context") as files:
            return {str(file.relative_to(files)) for file in files.rglob("*") if not file.is_dir()}

    def config(self, tag: str) -> dict[str, Any]:
        """Configuration of the image: `User`, `Env`, `Cmd`, `WorkingDir`, `Labels`."""
        found: dict[str, Any] = json.loads(self("inspect", "--type", "image", tag))["OCIv1"]["config"]
        return found

    @contextmanager
    def mounted(self, tag: str) -> Iterator[Path]:
        """The files of a container of the image."""
        container = self("from", "--pull-never", tag).strip()
        try:
            yield Path(self("mount", container).strip())
        finally:
            self("rm", container)

    def close(self) -> None:
        """Removes all that was built."""
        try:
            self("rm", "--all")
            self("rmi", "--all", "--force", timeout=300)
        finally:
            # buildah leaves its directory of layers mounted on itself.
            layers = self._directory / "images" / "overlay"
            subprocess.run(["umount", str(layers)], capture_output=True, check=False)
            shutil.rmtree(self._directory)


def _cas() -> Path:
    """The CAs that pip trusts here; those of the system where it was told none."""
    return Path(
        os.environ.get("PIP_CERT")
        or ssl.get_default_verify_paths().cafile
        or "/etc/ssl/certs/ca-certificates.crt"
    )


def _pip_settings() -> str:
    said = ran([sys.executable, "-m", "pip", "config", "list"], 60)
    settings = {"cert": _CAS}
    for line in said.splitlines():  # global.index-url='…', and :env:.index-url='…'
        name, _, value = line.partition("=")
        if name.rpartition(".")[2] in _OF_PIP:
            settings[name.rpartition(".")[2]] = value.strip("'")
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
