"""A small process that ends the nodes of a cluster, and removes their directory, when their owner is gone.

It reads lines `+PID`, `-PID` and `rm PATH` from a pipe; the pipe's end means that the owner ended, however it did.
PR_SET_PDEATHSIG would not do: it fires at the end of the *thread* that started the child, and cleans nothing up.
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
    """Watches over process ids and directories on behalf of this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C at the owner's terminal is the owner's to handle
        )

    def watch(self, pid: int) -> None:
        """Kill `pid` if this process ends first."""
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """`pid` has ended: the number may belong to somebody else from now on."""
        self._tell(f"-{pid}")

    def remove_at_end(self, directory: str) -> None:
        """Remove `directory` with all that is in it when this process ends or `close` is called."""
        self._tell(f"rm {directory}")

    def close(self) -> None:
        """Kills and removes all that is watched, and waits until that is done."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
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
    """Reads orders until the owner is gone, then carries out what is left."""
    pids: set[int] = set()
    directories: list[str] = []
    for line in sys.stdin:
        order = line.rstrip("\n")
        if order.startswith("+"):
            pids.add(int(order[1:]))
        elif order.startswith("-"):
            pids.discard(int(order[1:]))
        elif order.startswith("rm "):
            directories.append(order[3:])
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
