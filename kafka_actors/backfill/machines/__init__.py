"""Pure decisions of a backfill: the plan, whether the history was read, the offsets that the group commits."""
