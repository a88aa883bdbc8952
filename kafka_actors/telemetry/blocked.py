"""The kind of a reason why nothing is read of a partition: few values, for metrics, of a text for people."""

from __future__ import annotations

import re

__all__ = ["kind_of_reason"]

_HEAD = re.compile(r"[a-z ]+[a-z]")


def kind_of_reason(reason: str) -> str:
    """`backing off: no answer in 30 s` → `backing_off`; `broker 3: throttled` → `broker`; empty for none.

    Kinds: paused, buffer_full (backpressure), no_leader, open_transaction, retrying (the function fails on a record and
    is called again), failed, backing_off, broker (it can't be reached, or throttles), draining, awaiting_offset,
    validating, at_end, no_lease, waits_for_its_turn (its worker is at others); and no_worker, of a job's partition that none of its workers has.
    """
    found = _HEAD.match(reason)
    return found[0].replace(" ", "_") if found is not None else ""
