from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .protobuf_plan import Plan, ProtobufMachine

class Machine(ProtobufMachine):
    def __init__(self, plan: Plan) -> None: ...
    def run(
        self, values: Any, rows: npt.NDArray[np.int32], skipped: npt.NDArray[np.int32]
    ) -> tuple[pa.RecordBatch, list[tuple[int, int, int]]]: ...
