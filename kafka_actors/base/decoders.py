"""Decoders of msgspec for the library's types, made one at a time.

msgspec builds what it knows of a Struct, a NamedTuple or a dataclass when a decoder first asks for it, and puts it where all
find it before it is complete: a second thread that asks meanwhile ends its process (SIGSEGV, msgspec 0.22). So every
decoder is made here, under one lock; a decoder that is made may be used in any thread. A test holds the rule.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.RLock()
_kept: dict[type, msgspec.msgpack.Decoder[Any]] = {}


def _renew() -> None:
    """In the child of a fork, which has only the thread that forked."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def msgpack(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """The decoder of MessagePack bytes into this type, which is kept."""
    found = _kept.get(kind)
    if found is None:
        with _lock:
            found = _kept[kind] = msgspec.msgpack.Decoder(kind)
    return found


def json(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder of JSON into this type, which may be one that was made for this once: it isn't kept."""
    with _lock:
        return msgspec.json.Decoder(kind)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """As `msgspec.convert`: for small values, since others wait meanwhile. Raises `msgspec.ValidationError`."""
    with _lock:
        return msgspec.convert(value, kind, strict=strict)
