from collections.abc import Callable, Sequence

from .messages import Answer, PartitionFetch

class FetchLoop:
    exchanges: int
    requests: int
    waited_s: float
    wake: Callable[[], object]

    def __init__(
        self, partitions: list[PartitionFetch], request: bytes, tail: int, broker: int, sequence: int
    ) -> None: ...
    def interrupt(self) -> None: ...
    def run(
        self,
        fd: int,
        request: bytes,
        credit: int,
        least_credit: int,
        most_s: float,
        timeout_s: float,
    ) -> tuple[int, int, bytes]: ...
    def drain(self) -> Sequence[Answer]: ...
    def advanced(self) -> list[tuple[int, int]]: ...
