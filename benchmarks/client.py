"""One run in a process of its own: `python -m benchmarks.client module:function TASK`, TASK and the printed result as JSON."""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    where, task = sys.argv[1:]
    module, name = where.split(":")
    result = getattr(importlib.import_module(module), name)(json.loads(task))
    if result is not None:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
