"""Start of each Python process of the integration tests: Python itself imports this module where its directory is in PYTHONPATH.

A Ray that the process starts gets the time of a busy machine: see `patient_ray`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any


class _PatienceWithRay(MetaPathFinder):
    """Finder that makes one module of Ray's patient when it has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "ray._private.services":
            return None
        sys.meta_path.remove(self)
        found = find_spec(name)
        if found is not None and found.loader is not None:
            found.loader.exec_module = _and_patience(found.loader.exec_module)  # type: ignore[method-assign]
        return found


def _and_patience(load: Any) -> Any:
    def load_patient(module: ModuleType) -> None:
        load(module)
        tests = str(Path(__file__).parents[1])
        sys.path.append(tests)
        try:
            from patient_ray import be_patient
        finally:
            sys.path.remove(tests)
        be_patient(module)

    return load_patient


sys.meta_path.insert(0, _PatienceWithRay())
