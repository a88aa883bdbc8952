"""What decides: the plan, whether the history was read, what the group commits. Pure."""
