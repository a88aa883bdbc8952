"""The command `kafka-actors`. Importing this package imports neither Ray nor a Kafka client."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Runs the command line on `sys.argv`; returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    from .main import run_command_line
    from .output import escaping

    escaping(sys.stdout)
    return run_command_line()
