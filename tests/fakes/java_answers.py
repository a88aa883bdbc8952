"""Answers of the Java programs in tests/java, kept in files: tests ask those, and `make java-answers` has the programs asked anew.

A question that isn't in the file is one that nobody has put to Java: our side of the test has changed, by a defect or on purpose.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

JAVA = Path(__file__).parents[1] / "java"
RECORDING = os.environ.get("JAVA_ANSWERS") == "record"
"""Whether the programs are asked, and the files written anew."""


class Answers:
    """The answers of `program`, with Kafka's classes of version `kafka`, in tests/java/answers."""

    def __init__(self, name: str, program: Path, kafka: str) -> None:
        self._file = JAVA / "answers" / f"{name}.json.xz"
        self._of = {"kafka": kafka, "program": _digest(program.read_bytes())}
        self._recorded: dict[str, str] = {}
        self._known = {} if RECORDING else json.loads(lzma.decompress(self._file.read_bytes()))

    @property
    def is_stale(self) -> bool:
        """Whether they are of another program, or of other classes of Kafka's."""
        return not RECORDING and self._known["of"] != self._of

    def get(self, question: bytes, ask: Callable[[], str]) -> str:
        """The answer to a question. Raises `AssertionError` for one that Java was never asked; `ask` does that while recording."""
        key = _digest(question)
        if RECORDING:
            answer = self._recorded[key] = ask()
            return answer
        found: str | None = self._known["answers"].get(key)
        assert found is not None, (
            f"{self._file.name} has no answer to this question: a defect of ours, or the test asks something else than before, and then "
            f"`make java-answers` asks Java: {question[:300]!r}"
        )
        return found

    def close(self) -> None:
        """Writes down what was recorded."""
        if RECORDING:
            text = json.dumps({"of": self._of, "answers": dict(sorted(self._recorded.items()))}, indent=0)
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_bytes(lzma.compress(text.encode()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
