"""Offsets beyond a committed one whose records are done as well, and the text in which commit metadata keeps them.

A job whose calls overtake each other commits the offset of the first record that isn't done. What is done beyond it stands in the
commit's metadata, so that the next reader skips it: after a crash only what was in hand comes again. It is never the only copy of
anything: without it, records come again, and none is lost.

The text is `{leader epoch}.{form}{base64}`, relative to the committed offset. Form `r` has lengths of runs, of records to do and of done
ones in turn, as varints; form `b` has a bit for each offset, the lowest first. The shorter one is taken; where neither fits, the newest
offsets are left out.

The leader epoch is that of the newest record. Epochs only rise along a log (KIP-320), so a record that took the place of one of these,
after its log was cut, has a higher one: by that a reader knows that it isn't done.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .commit_metadata import MOST_DONE

__all__ = ["NOTHING_DONE", "DoneOffsets", "Ranges", "ranges_of", "shortened"]

Ranges = npt.NDArray[np.int64]
"""Ranges of offsets, in order and apart: rows of (first, behind the last)."""


class DoneOffsets:
    """Ranges of done offsets, with the leader epoch of the newest record in them. A value: nothing changes it."""

    __slots__ = ("leader_epoch", "ranges")

    def __init__(self, ranges: Iterable[tuple[int, int]] | Ranges = (), leader_epoch: int = -1) -> None:
        self.ranges: Ranges = np.asarray(
            ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64
        ).reshape(-1, 2)
        self.leader_epoch = leader_epoch

    def __bool__(self) -> bool:
        return bool(len(self.ranges))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DoneOffsets):
            return NotImplemented
        return self.leader_epoch == other.leader_epoch and np.array_equal(self.ranges, other.ranges)

    __hash__ = None  # type: ignore[assignment]  # its arrays have none

    def __repr__(self) -> str:
        return f"<DoneOffsets {', '.join(f'{a}-{b - 1}' for a, b in self.ranges[:5].tolist())}, epoch {self.leader_epoch}>"

    def has(self, offsets: npt.NDArray[np.int64], leader_epoch: int) -> npt.NDArray[np.bool_]:
        """Returns which of these records are done. `leader_epoch`: of all of them; those of a later epoch took another's place."""
        if not self or leader_epoch > self.leader_epoch:
            return np.zeros(len(offsets), bool)
        at = np.searchsorted(self.ranges[:, 0], offsets, "right") - 1
        found: npt.NDArray[np.bool_] = (at >= 0) & (offsets < self.ranges[at, 1])
        return found

    def behind(self, offset: int) -> DoneOffsets:
        """Returns what of it lies at or behind an offset."""
        kept = self.ranges[self.ranges[:, 1] > offset]
        if not len(kept):
            return NOTHING_DONE
        return DoneOffsets(np.maximum(kept, offset), self.leader_epoch)

    def before(self, offset: int) -> DoneOffsets:
        """Returns what of it lies before an offset."""
        kept = self.ranges[self.ranges[:, 0] < offset]
        if not len(kept):
            return NOTHING_DONE
        return DoneOffsets(np.minimum(kept, offset), self.leader_epoch)

    def end(self, offset: int) -> int:
        """Returns the offset behind the last one; `offset` where there is none."""
        return int(self.ranges[-1, 1]) if self else offset

    def joined(self, behind: DoneOffsets) -> DoneOffsets:
        """Returns this and offsets that all lie behind it."""
        if not self or not behind:
            return self or behind
        epoch = max(self.leader_epoch, behind.leader_epoch)
        if self.ranges[-1, 1] < behind.ranges[0, 0]:
            return DoneOffsets(np.concatenate((self.ranges, behind.ranges)), epoch)
        bridge = [[self.ranges[-1, 0], behind.ranges[0, 1]]]
        return DoneOffsets(np.concatenate((self.ranges[:-1], bridge, behind.ranges[1:])), epoch)

    # ------------------------------------------------------------ text

    def text(self, committed: int, most: int = MOST_DONE) -> str:
        """Returns the text for a commit of the offset `committed`, of at most so many characters; empty where nothing is done beyond it."""
        relative = self.behind(committed).ranges - committed
        head = f"{self.leader_epoch}."
        room = (most - len(head) - 1) * 3 // 4
        if not len(relative) or room <= 0:
            return ""
        forms = {"r": _runs(relative, room), "b": _bits(relative, room)}
        # The shorter one that has all; where none has, the one that has more.
        form = min(forms, key=lambda name: (-forms[name][1], len(forms[name][0])))
        packed = forms[form][0]
        return f"{head}{form}{base64.urlsafe_b64encode(packed).decode().rstrip('=')}" if packed else ""

    @classmethod
    def of_text(cls, text: str, committed: int) -> DoneOffsets:
        """Reads a text that was committed with this offset. One that is damaged or of another form says nothing."""
        epoch, dot, packed = text.partition(".")
        try:
            data = base64.b64decode(packed[1:] + "=" * (-len(packed[1:]) % 4), b"-_", validate=True)
            leader_epoch = int(epoch)
            if not dot or not -1 <= leader_epoch < 1 << 31:
                return NOTHING_DONE
            relative = _of_form(packed[:1], data)
        except (ValueError, binascii.Error):
            return NOTHING_DONE
        if not len(relative):
            return NOTHING_DONE
        return cls(relative + committed, leader_epoch)


NOTHING_DONE = DoneOffsets()


def shortened(text: str, most: int) -> str:
    """Returns a text with the newest offsets left out, so that it has at most so many characters."""
    return text if len(text) <= most else DoneOffsets.of_text(text, 0).text(0, most)


def _of_form(form: str, data: bytes) -> Ranges:
    if form == "r":
        return _ranges_of_runs(list(_numbers(data)))
    if form == "b":
        return _ranges_of_bits(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"))
    raise ValueError(f"form {form!r}")


def _runs(relative: Ranges, room: int) -> tuple[bytes, int]:
    """Returns the lengths of runs that fit, and behind which offset they end."""
    packed, at = bytearray(), 0
    for first, behind in relative.tolist():
        pair = _varint(first - at) + _varint(behind - first)
        if len(packed) + len(pair) > room:
            break
        packed += pair
        at = behind
    return bytes(packed), at


def _bits(relative: Ranges, room: int) -> tuple[bytes, int]:
    """Returns a bit for each offset as far as they fit, and behind which offset they end."""
    size = min(int(relative[-1, 1]), 8 * room)
    bits = np.zeros(size, np.uint8)
    for first, behind in relative.tolist():
        if first >= size:
            break
        bits[first:behind] = 1
    return np.packbits(bits, bitorder="little").tobytes(), size


def _ranges_of_runs(lengths: list[int]) -> Ranges:
    """Raises `ValueError` for lengths that no writer writes."""
    if (
        len(lengths) % 2
        or any(done == 0 for done in lengths[1::2])
        or any(todo == 0 for todo in lengths[2::2])
    ):
        raise ValueError("lengths of runs come in pairs, and only the first may be 0")
    ends = np.cumsum(np.asarray(lengths, object)) if lengths else np.zeros(0, object)
    if len(ends) and ends[-1] >= 1 << 62:
        raise ValueError("runs beyond all offsets")
    return ends.astype(np.int64).reshape(-1, 2)


def _ranges_of_bits(bits: npt.NDArray[np.uint8]) -> Ranges:
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0).astype(np.int8))
    return edges.astype(np.int64).reshape(-1, 2)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _numbers(data: bytes) -> Iterator[int]:
    """Yields varints. Raises `ValueError` for one that is cut or longer than 63 bits."""
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > 56:
                raise ValueError("a number of more than 63 bits")
        else:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("a number is cut")


def ranges_of(offsets: npt.NDArray[np.int64], done: npt.NDArray[Any]) -> Ranges:
    """Returns the ranges of done records among these, which are all of a partition, in order. Offsets without a record between two
    done ones count as done."""
    rows = _ranges_of_bits(done.astype(np.uint8))
    return np.stack((offsets[rows[:, 0]], offsets[rows[:, 1] - 1] + 1), axis=1)
