from collections.abc import Sequence
from typing import Any

from .avro_encoding import AvroWriterMachine
from .avro_program import Program

class Machine(AvroWriterMachine):
    def __init__(self, program: Program) -> None: ...
    def run(
        self, columns: Sequence[Any], rows: int, frame: bytes
    ) -> tuple[Any, list[tuple[int, int, int, int]]]: ...
