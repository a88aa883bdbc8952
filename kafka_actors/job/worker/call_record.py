"""Record of the calls that a worker has in hand, which can be read after the worker's process has died.

It lies in anonymous shared memory (memfd, Linux). The connection actors of the node get a descriptor over the
shared-memory transport, so the memory outlives the process. Ray, the process's parent, doesn't tell how it ended; so the
record also holds the exit code passed to `os._exit`, and the text that Python's faulthandler writes on a fatal signal
such as SIGSEGV.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import re
import struct
import sys
from collections.abc import Hashable
from typing import NoReturn

from kafka_actors.base import decoders
from kafka_actors.job.messages import CallInHand, CrashReport, pack, unpack
from kafka_actors.types import TopicPartition

__all__ = ["CallRecord", "read_crash_report"]

MOST_CALLS = 64
"""The most calls that a record holds: among more, nobody could tell which one ended the process."""
_HALF = 32 * 1024
_HEAD = struct.Struct("=BBi")  # the valid half, whether `os._exit` was called, its exit code
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
"""Signals by the words that Python's faulthandler writes for them."""
_FATAL = re.compile(r"Fatal Python error: (.+)")
_FRAME = re.compile(r'File "(.+)", line (\d+) in (\S+)')


class CallRecord:
    """Writes the record, in the worker. Two halves are written in turn, so that one is complete whenever the process
    ends."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("kafka-actors-calls", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, _TEXT)
        self._memory = mmap.mmap(self.descriptor, _TEXT)
        self._calls: dict[Hashable, CallInHand] = {}
        self._half = 0
        self._write()

    @classmethod
    def of_this_process(cls) -> CallRecord | None:
        """Makes the record of this process and has it note how the process ends. None on systems other than Linux."""
        if sys.platform != "linux":
            return None
        record = cls()
        record.record_exit()
        return record

    def call_began(self, partition: TopicPartition, first: int, last: int, call: Hashable = None) -> None:
        """Notes that a call with these offsets, first and last, begins: the partition's only one, unless `call` stands for it."""
        self._calls[call or partition] = CallInHand(partition, first, last)
        self._write()

    def call_ended(self, partition: TopicPartition, call: Hashable = None) -> None:
        """Notes that a call is over."""
        self._calls.pop(call or partition, None)
        self._write()

    def _write(self) -> None:
        calls = list(self._calls.values()) if len(self._calls) <= MOST_CALLS else []
        packed = pack(CrashReport(calls))
        at = _HEAD.size + (1 - self._half) * _HALF
        self._memory[at : at + _LENGTH.size + len(packed)] = _LENGTH.pack(len(packed)) + packed
        self._half = 1 - self._half
        self._memory[0] = self._half

    def record_exit(self) -> None:
        """Wraps `os._exit` and enables faulthandler. Once for a process, before code of the user's runs."""
        own_pid, os_exit = os.getpid(), os._exit

        def exits(status: int) -> NoReturn:
            if os.getpid() == own_pid:  # not in a process that the user's function forked
                _HEAD.pack_into(self._memory, 0, self._half, 1, status)
            os_exit(status)

        os._exit = exits
        os.lseek(self.descriptor, _TEXT, os.SEEK_SET)
        faulthandler.enable(self.descriptor, all_threads=False)
        os.register_at_fork(after_in_child=lambda: faulthandler.enable(2, all_threads=False))


def read_crash_report(descriptor: int) -> CrashReport | None:
    """Reads a record, in any process. None where it can't be read: a live worker may be writing it."""
    try:
        return _read(descriptor)
    except (OSError, struct.error, *decoders.UNREADABLE):
        return None


def _read(descriptor: int) -> CrashReport:
    half, exited, status = _HEAD.unpack(os.pread(descriptor, _HEAD.size, 0))
    at = _HEAD.size + half * _HALF
    (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
    written = unpack(os.pread(descriptor, length, at + _LENGTH.size), CrashReport)
    text = os.pread(descriptor, _MOST_TEXT, _TEXT).decode(errors="replace")
    return CrashReport(written.calls, f"exit code {status}" if exited else _signal_in(text))


def _signal_in(text: str) -> str:
    """Returns, for example, `SIGSEGV in f (work.py:3)`; empty where faulthandler had no time to write."""
    fatal, frame = _FATAL.search(text), _FRAME.search(text)
    if fatal is None:
        return ""
    name = _SIGNALS.get(fatal[1].strip(), fatal[1].strip())
    return f"{name} in {frame[3]} ({os.path.basename(frame[1])}:{frame[2]})" if frame is not None else name
