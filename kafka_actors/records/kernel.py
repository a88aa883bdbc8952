"""Chooses between the compiled kernel and its plain-Python twin, once, at import."""

from __future__ import annotations

import warnings
from typing import Literal

from .batch import Kernel

ACTIVE: Kernel
KERNEL: Literal["cython", "python"]
"""Name of the kernel that decodes records in this process."""

try:
    from . import _kernel

    ACTIVE = _kernel
    KERNEL = "cython"
except ImportError as error:
    from . import _reference

    ACTIVE = _reference
    KERNEL = "python"
    warnings.warn(
        f"kafka-actors runs without its compiled record kernel ({error}); plain Python decodes the records, "
        "which is correct but about a hundred times slower. Install a wheel, or a C compiler and reinstall.",
        RuntimeWarning,
        stacklevel=2,
    )
