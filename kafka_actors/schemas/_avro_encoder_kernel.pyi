from collections.abc import Sequence
from typing import Any

from .avro_program import Program
from .written_columns import WriterMachine

class Machine(WriterMachine):
    def __init__(self, program: Program) -> None: ...
    def run(
        self, columns: Sequence[Any], rows: int, frame: bytes
    ) -> tuple[Any, list[tuple[int, int, int, int]]]: ...
