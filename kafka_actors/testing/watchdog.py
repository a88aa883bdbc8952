"""A process that ends the nodes of a cluster, and removes their directory, when the process that owns them has ended.

It reads lines `+PID`, `-PID` and `rm PATH` from a pipe; the end of the pipe means that the owner has ended, however.
PR_SET_PDEATHSIG is no alternative: it fires at the end of the *thread* that started the child, and removes no files.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress


class Watchdog:
    """Starts the watching process, and tells it which process ids and directories to clean up when this process ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C at the owner's terminal must not end it
        )

    def watch(self, pid: int) -> None:
        """Adds a process that is killed if this process ends first."""
        self._send(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Removes a process that has ended: its id may be reused. Whoever ends a cluster ends further ones, also if the watching process is gone."""
        with suppress(BrokenPipeError):
            self._send(f"-{pid}")

    def remove_at_end(self, directory: str) -> None:
        """Adds a directory that is removed, with its content, when this process ends or `close` is called."""
        self._send(f"rm {directory}")

    def close(self) -> None:
        """Kills the processes, removes the directories, and waits until that is done."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Reads lines until the owner has ended, then kills the processes and removes the directories that are left."""
    pids: set[int] = set()
    directories: list[str] = []
    for line in sys.stdin:
        command = line.rstrip("\n")
        if command.startswith("+"):
            pids.add(int(command[1:]))
        elif command.startswith("-"):
            pids.discard(int(command[1:]))
        elif command.startswith("rm "):
            directories.append(command[3:])
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(map(_is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
