"""A note of the calls that a worker has in hand: it outlives the worker's process, for whoever asks why that ended.

It lies in memory without a name, of which the connection actors of the node get a descriptor through the door: when
the process is gone, nothing else is left of it. Only the process itself can say how it ended: Ray, whose child it is, doesn't
tell. So the note has the exit code that was given to `os._exit`, and what Python writes when a signal like SIGSEGV ends it.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import re
import struct
import sys
from typing import NoReturn

import msgspec

from kafka_actors.job.messages import CallInHand, CrashReport, pack, unpack
from kafka_actors.types import TopicPartition

__all__ = ["CallRecord", "last_words"]

MOST_CALLS = 64
"""The most calls that a note holds: of more at a time nobody could find out which one ended the process."""
_HALF = 32 * 1024
_HEAD = struct.Struct("=BBi")  # the half that counts, whether it has exited, the exit code
_LENGTH = struct.Struct("=I")
_TEXT = _HEAD.size + 2 * _HALF
_MOST_TEXT = 4096

_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
}
"""Signals, by the words that Python's faulthandler writes for them."""
_FATAL = re.compile(r"Fatal Python error: (.+)")
_FRAME = re.compile(r'File "(.+)", line (\d+) in (\S+)')


class CallRecord:
    """The worker's side. Two halves are written in turn, so that one is whole whenever the process ends."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("kafka-actors-calls", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, _TEXT)
        self._memory = mmap.mmap(self.descriptor, _TEXT)
        self._calls: dict[TopicPartition, CallInHand] = {}
        self._half = 0
        self._write()

    @classmethod
    def of_this_process(cls) -> CallRecord | None:
        """Where the system has such memory; from now on the note says how the process ends."""
        if sys.platform != "linux":
            return None
        note = cls()
        note.keep_last_words()
        return note

    def begins(self, partition: TopicPartition, first: int, last: int) -> None:
        """A call with these records begins."""
        self._calls[partition] = CallInHand(partition, first, last)
        self._write()

    def ends(self, partition: TopicPartition) -> None:
        self._calls.pop(partition, None)
        self._write()

    def _write(self) -> None:
        calls = list(self._calls.values()) if len(self._calls) <= MOST_CALLS else []
        packed = pack(CrashReport(calls))
        at = _HEAD.size + (1 - self._half) * _HALF
        self._memory[at : at + _LENGTH.size + len(packed)] = _LENGTH.pack(len(packed)) + packed
        self._half = 1 - self._half
        self._memory[0] = self._half

    def keep_last_words(self) -> None:
        """Once for a process, before code of the user's runs."""
        here, leave = os.getpid(), os._exit

        def exits(status: int) -> NoReturn:
            if os.getpid() == here:  # else a process that the user's function forked
                _HEAD.pack_into(self._memory, 0, self._half, 1, status)
            leave(status)

        os._exit = exits
        os.lseek(self.descriptor, _TEXT, os.SEEK_SET)
        faulthandler.enable(self.descriptor, all_threads=False)
        os.register_at_fork(after_in_child=lambda: faulthandler.enable(2, all_threads=False))


def last_words(descriptor: int) -> CrashReport | None:
    """Reads the note; for any process. None where it can't be read: a worker that lives may be writing it."""
    try:
        return _read(descriptor)
    except (OSError, struct.error, msgspec.DecodeError):
        return None


def _read(descriptor: int) -> CrashReport:
    half, exited, status = _HEAD.unpack(os.pread(descriptor, _HEAD.size, 0))
    at = _HEAD.size + half * _HALF
    (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
    words = unpack(os.pread(descriptor, length, at + _LENGTH.size), CrashReport)
    text = os.pread(descriptor, _MOST_TEXT, _TEXT).decode(errors="replace")
    return CrashReport(words.calls, f"exit code {status}" if exited else _signal_in(text))


def _signal_in(text: str) -> str:
    """`SIGSEGV in f (work.py:3)`; empty where Python had no time to say anything."""
    fatal, frame = _FATAL.search(text), _FRAME.search(text)
    if fatal is None:
        return ""
    said = _SIGNALS.get(fatal[1].strip(), fatal[1].strip())
    return f"{said} in {frame[3]} ({os.path.basename(frame[1])}:{frame[2]})" if frame is not None else said
