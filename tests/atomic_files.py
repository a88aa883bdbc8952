"""Files that one process writes while another one waits for them: whoever sees the name reads all of the text."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomically(file: Path, text: str, mode: int | None = None) -> None:
    """Writes the text beside the file and then gives it the name, in place of a file that has it; `mode` is that of `os.chmod`.

    The name of the draft begins with a dot and ends with the process and thread: a pattern like `*.json` doesn't find it.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    draft.write_text(text, encoding="utf-8")
    if mode is not None:
        draft.chmod(mode)
    draft.replace(file)
