"""Paths of users: directories, URIs with pyarrow's names of file systems, and files with schemas; and the flush of files to the disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kafka_actors.errors import ConfigError

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_OURS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's name of a file system → pyarrow's."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//?)")


def wrong_path(path: Any) -> str | None:
    """Explains what is wrong with a path, for an error message; None for a directory or a known URI."""
    if not isinstance(path, str) or not path:
        return f"is {path!r}: accepts a directory or URI"
    found = _URI.match(path)
    if found is None:
        return None
    scheme = found[1].lower()
    if scheme in SCHEMES and found[2] == "//":
        return None
    if scheme in _OURS:
        return f"is {path!r}, by Hadoop's name of the file system: write {_OURS[scheme]}://, on every engine"
    return f"is {path!r}: the URIs that are known begin with {', '.join(f'{known}://' for known in SCHEMES)}"


def absolute_path(path: str) -> str:
    """A path that is valid in every process: a relative one is resolved in this process's working directory."""
    return path if "://" in path else os.path.abspath(path)


def directory_of(path: str) -> str:
    """The directory that a path or URI names, one text for one directory: for comparisons."""
    if path.lower().startswith("file://"):
        path = unquote(urlsplit(path).path)
    return absolute_path(path).rstrip("/")


def schema_text(schema: Any, suffix: str) -> Any:
    """The text in the file that a path names, a `Path` or a text that ends with `suffix`; any other schema as it is. Raises `ConfigError`."""
    if not isinstance(schema, Path) and not (isinstance(schema, str) and schema.endswith(suffix)):
        return schema
    try:
        return Path(schema).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("schema", f"{schema} can't be read: {error.strerror}") from None


def sync(path: str | os.PathLike[str]) -> None:
    """Flushes a file, or a directory's list of files, from the page cache to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
