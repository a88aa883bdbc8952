"""Runs the benchmarks: ``python -m benchmarks [NAME] [options]``, without a name all of them, each with its defaults.

python -m benchmarks consumer --codecs none,zstd --runs 5
python -m benchmarks consumer --help
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

NAMES = ("consumer", "producer", "job", "bench_assignors", "bench_metadata")


def main() -> None:
    known = [name for name in NAMES if importlib.util.find_spec(f"benchmarks.{name}") is not None]
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        print("Names:", ", ".join(known))
        return
    if arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        name = name if name in known else f"bench_{name}"
        if name not in known:
            sys.exit(f"no benchmark is called {name.removeprefix('bench_')!r}: there are {', '.join(known)}")
        known = [name]
    for name in known:
        sys.argv = [f"benchmarks {name}", *arguments]
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
