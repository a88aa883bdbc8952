"""`WaitingKeys`: which keys of one partition have records that wait in its retry partitions.

Theory of operation. A record may be processed only where no earlier one of its key waits in a later tier; otherwise it follows that: into the
lowest later tier that has its key. So of a key's records those in a later tier come before those in an earlier one, and in each tier they are in
the order of their offsets in the source, because those of a tier are dealt with one after the other, and move to later tiers only. In a tier in
front of that it would be due with the one that it follows, and hold up records of other keys behind it, which are due sooner.

Arrives: what is found in the retry partitions when they are taken over (`found`), what is about to be written there (`writing`), the offset that
it got (`written`), and what is done in its tier (`done`): it was processed, is a dead letter, or was written into a later tier. Decided: whether
a record has to follow, where to, and when it is due there (`behind`): as soon as the one that it follows, because it didn't fail itself.

Of a key's records in a tier only the newest offset is kept. They are done in order, so when that one is done, none waits any more; one whose
offset isn't known yet is newer than all others. So a record that is gone from its log holds its key only until the next one of the key is
done.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["WaitingKeys"]


class _Mark:
    """Records of one key in one tier. `unknown`: how many were written whose offsets aren't known; `newest`: the newest offset that is;
    `done`: up to where they are done; `due`: when they are to be processed."""

    __slots__ = ("done", "due", "newest", "unknown")

    def __init__(self) -> None:
        self.unknown = 0
        self.newest = self.done = self.due = -1

    @property
    def over(self) -> bool:
        return not self.unknown and self.done >= self.newest


class WaitingKeys:
    """Keys with records in the retry partitions of one number, by tier, from 1 on."""

    def __init__(self, tiers: int) -> None:
        self._marks: list[dict[Hashable, _Mark]] = [{} for _ in range(tiers)]

    def __len__(self) -> int:
        return sum(map(len, self._marks))

    def _mark(self, tier: int, key: Hashable, due: int) -> _Mark:
        mark = self._marks[tier - 1].setdefault(key, _Mark())
        mark.due = max(mark.due, due)
        return mark

    def found(self, tier: int, key: Hashable, offset: int, due: int) -> None:
        """Takes that a record waits in a tier. `due`: when it is to be processed."""
        mark = self._mark(tier, key, due)
        mark.newest = max(mark.newest, offset)

    def begin_anew(self, tier: int) -> None:
        """Takes that the log of a tier is another one, or was cut: what is there is found anew; what is being written is on its way still."""
        marks = self._marks[tier - 1] = {
            key: mark for key, mark in self._marks[tier - 1].items() if mark.unknown
        }
        for mark in marks.values():
            mark.newest = mark.done = -1

    def writing(self, tier: int, key: Hashable, due: int) -> None:
        """Takes that a record is about to be written into a tier."""
        self._mark(tier, key, due).unknown += 1

    def written(self, tier: int, key: Hashable, offset: int) -> None:
        """Takes the offset that a record got which was about to be written."""
        mark = self._marks[tier - 1][key]
        mark.unknown -= 1
        mark.newest = max(mark.newest, offset)
        if mark.over:  # it was read before its writer heard of it
            del self._marks[tier - 1][key]

    def done(self, tier: int, key: Hashable, offset: int) -> None:
        """Takes that a record is done in its tier, and with it all of its key before it."""
        mark = self._marks[tier - 1].get(key)
        if mark is None:
            return
        mark.done = max(mark.done, offset)
        if mark.over:
            del self._marks[tier - 1][key]

    def behind(self, tier: int, key: Hashable) -> tuple[int, int] | None:
        """Returns into which tier a record of a tier, 0 for the source, has to follow earlier ones of its key, the lowest where they wait, and when
        it is due there; None where none waits."""
        later = enumerate(self._marks[tier:], tier + 1)
        return next(((number, marks[key].due) for number, marks in later if key in marks), None)
