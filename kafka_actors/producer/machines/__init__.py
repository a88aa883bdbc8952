"""Decisions of sending, without IO: time and randomness are passed in."""
