"""A pod of the chart on an image's files, as a kubelet and KubeRay would have it.

bubblewrap stands for the container runtime: processes, root and mounts of the pod's own, its user, none of its capabilities. What
Kubernetes limits by cgroups, and seccomp, isn't there; the network is that of the thread that starts it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helm.chart import Rendered

_CLONE_NEWNET = 0x4000_0000
_SIOCSIFFLAGS, _UP = 0x8914, 0x1

HEAD = "127.0.0.1"
OF_KUBERAY = {"RAY_ADDRESS": f"{HEAD}:6379", "RAY_PORT": "6379", "FQ_RAY_IP": HEAD}
"""Variables that KubeRay adds to a Ray container, as far as pods here need them."""


@dataclass(frozen=True)
class Pod:
    """The first container of a pod template. `directory` is for its volumes; pods that are given one directory share them."""

    files: Path
    config: dict[str, Any]
    """The image's files, and what it says of itself."""
    rendered: Rendered
    template: dict[str, Any]
    directory: Path

    @property
    def container(self) -> dict[str, Any]:
        found: dict[str, Any] = self.template["spec"]["containers"][0]
        return found

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a command in the pod until it ends."""
        return subprocess.run(
            self._wrapped(command), capture_output=True, text=True, timeout=timeout, check=False, env={}
        )

    def start(self, *command: str, log: Path) -> subprocess.Popen[bytes]:
        """Starts the pod with this command, whose output goes to `log`. All that it starts ends with it."""
        with log.open("wb") as said:
            return subprocess.Popen(
                self._wrapped(command), stdin=subprocess.DEVNULL, stdout=said, stderr=said, env={}
            )

    def _wrapped(self, command: tuple[str, ...]) -> list[str]:
        security = {**self.template["spec"]["securityContext"], **self.container["securityContext"]}
        root = "--ro-bind" if security["readOnlyRootFilesystem"] else "--bind"
        options = [
            root,
            str(self.files),
            "/",
            "--proc",
            "/proc",
            "--ro-bind",
            "/sys",
            "/sys",
            "--dev",
            "/dev",
        ]
        options += ["--perms", "1777", "--tmpfs", "/dev/shm"]  # KubeRay's volume
        options += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"]
        options += ["--hostname", "pod", "--ro-bind", str(self._hosts()), "/etc/hosts"]
        for mount in self.container["volumeMounts"]:
            bind = "--ro-bind" if mount.get("readOnly") else "--bind"
            options += [bind, str(self._volume(mount["name"], security["fsGroup"])), mount["mountPath"]]
            # A container runtime makes what is mounted on, before the root is read-only.
            (self.files / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name, value in self._variables().items():
            options += ["--setenv", name, value]
        # Changes to the user, and takes from it what root may.
        options += ["--chdir", self.config["WorkingDir"], "--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            options += ["--cap-add", capability]
        user = ["--reuid", str(security["runAsUser"]), "--regid", str(security["runAsGroup"])]
        user += ["--groups", str(security["fsGroup"]), "--inh-caps=-all"]
        if security["capabilities"]["drop"] == ["ALL"]:
            user.append("--bounding-set=-all")
        if security["allowPrivilegeEscalation"] is False:
            user.append("--no-new-privs")
        return ["/usr/bin/bwrap", *options, "/usr/bin/setpriv", *user, *command]

    def _variables(self) -> dict[str, str]:
        said = dict(variable.split("=", 1) for variable in self.config["Env"])
        return {**said, **OF_KUBERAY, **{each["name"]: each["value"] for each in self.container["env"]}}

    def _hosts(self) -> Path:
        file = self.directory / "hosts"
        file.write_text(f"{HEAD} localhost pod\n")
        (self.files / "etc" / "hosts").touch()
        return file

    def _volume(self, name: str, group: int) -> Path:
        (volume,) = (volume for volume in self.template["spec"]["volumes"] if volume["name"] == name)
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        if "configMap" in volume:
            (said,) = (
                each["data"]
                for each in self.rendered.all("ConfigMap")
                if each["metadata"]["name"] == volume["configMap"]["name"]
            )
            for file, text in said.items():
                (directory / file).write_text(text)
        else:
            assert "emptyDir" in volume, volume
            os.chown(directory, 0, group)
            directory.chmod(0o2777)
        return directory


def head_command(parameters: dict[str, str]) -> list[str]:
    """Command that KubeRay 1.4 runs in the head's pod."""
    flags = {
        "dashboard-agent-listen-port": "52365",
        "dashboard-host": "0.0.0.0",
        "metrics-export-port": "8080",
        **parameters,
    }
    start = " ".join(
        ["ray start --head --block", *(f"--{name}={value}" for name, value in sorted(flags.items()))]
    )
    return ["/bin/bash", "-c", "--", f"ulimit -n 65536; {start}"]


def submit_command(entrypoint: str, job: str) -> list[str]:
    """Command that KubeRay 1.4 runs in the submitter's pod: it submits what isn't submitted yet, and shows its log."""
    address = f"--address http://{HEAD}:8265"
    text = (
        f"if ! ray job status {address} {job} >/dev/null 2>&1 ; "
        f"then ray job submit {address} --no-wait --submission-id {job} -- {entrypoint} ; fi ; "
        f"ray job logs {address} --follow {job}"
    )
    return ["/bin/bash", "-c", "--", text]


@contextmanager
def own_network() -> Iterator[None]:
    """A network for this thread and what it starts: nothing but loopback, with all ports free."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as before:
        if libc.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace could be made")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP))
            yield
        finally:
            if libc.setns(before.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "this thread's network could not be had back")
