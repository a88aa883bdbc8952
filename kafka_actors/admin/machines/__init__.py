"""Pure parts of the admin: the meaning of responses, the lag of a group, the plan of a reset."""
