"""What a read does about records that are gone, where `failOnDataLoss` is false."""

from __future__ import annotations

from kafka_actors.errors import DataLossError, FetchOffsetOutOfRangeError, LogTruncationError

from .offset_ranges import TaskRange


def go_on_at(loss: DataLossError, position: int, r: TaskRange) -> int | None:
    """Where the rest of the range is read from, None where nothing of it is left.

    `position` is the offset behind the last record handed out, or the start of the range. Never before it: what
    was handed out isn't handed out again, and what lies before the range wasn't asked for. Nor in a topic that was
    made anew: under the same offsets it has other records.
    """
    if isinstance(loss, LogTruncationError):
        return position
    if isinstance(loss, FetchOffsetOutOfRangeError):
        start = loss.log_start_offset
        return start if start is not None and position < start < r.end else None
    return None
