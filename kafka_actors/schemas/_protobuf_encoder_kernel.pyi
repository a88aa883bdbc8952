from collections.abc import Sequence
from typing import Any

from .protobuf_program import WriteProgram
from .written_columns import WriterMachine

class Machine(WriterMachine):
    def __init__(self, program: WriteProgram) -> None: ...
    def run(
        self, columns: Sequence[Any], rows: int, frame: bytes
    ) -> tuple[Any, list[tuple[int, int, int, int]]]: ...
