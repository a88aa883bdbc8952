"""Decisions about metadata, without IO: time and randomness are arguments, snapshots and wake-up times are results."""
