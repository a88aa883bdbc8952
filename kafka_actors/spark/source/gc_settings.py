"""What garbage collections cost in Spark's Python processes."""

from __future__ import annotations

import functools
import gc


@functools.cache
def leave_imports_out() -> None:
    """To be called when all is imported that a process needs. Spark collects garbage in a process after each task, and
    after each question at planning. What is imported by then is none, and going through it takes 10 to 40 ms each time,
    of a query that may have little else to do."""
    gc.freeze()
