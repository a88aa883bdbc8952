from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .avro_program import AvroMachine, Program

class Machine(AvroMachine):
    def __init__(self, program: Program) -> None: ...
    def run(
        self, values: Any, rows: Sequence[int] | npt.NDArray[np.int32], skipped: int
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int, int]]]: ...
