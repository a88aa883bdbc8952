"""Decoders of msgspec for the library's types, created under one lock.

msgspec builds its description of a Struct, a NamedTuple or a dataclass when the first decoder for it is created, and
publishes it before it is complete: a second thread that uses it meanwhile ends the process (SIGSEGV, msgspec 0.22). So
every decoder is created here, under one lock; a finished decoder may be used in any thread. A test holds the rule.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

UNREADABLE: tuple[type[msgspec.MsgspecError], type[UnicodeError]] = (msgspec.MsgspecError, UnicodeError)
"""Errors of a decoder for bytes or text that it can't read. Before msgspec 0.23, bytes that are not UTF-8 raise `UnicodeDecodeError`;
a lone surrogate in text raises `UnicodeEncodeError` in every version."""

_lock = threading.RLock()
_kept: dict[type, msgspec.msgpack.Decoder[Any]] = {}


def _renew() -> None:
    """Replaces the lock in the child of a fork, where a thread that held it does not exist."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def msgpack(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Returns the decoder of MessagePack bytes into a type; it is cached."""
    found = _kept.get(kind)
    if found is None:
        with _lock:
            found = _kept[kind] = msgspec.msgpack.Decoder(kind)
    return found


def json(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Returns a decoder of JSON into a type. It isn't cached, because the type may have been created for this use only."""
    with _lock:
        return msgspec.json.Decoder(kind)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Calls `msgspec.convert` under the lock; for small values, since other threads wait. Raises `msgspec.ValidationError`."""
    with _lock:
        return msgspec.convert(value, kind, strict=strict)
