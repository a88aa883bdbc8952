"""Decisions about connections and requests, without IO: time and randomness are arguments, bytes and wake-up times results."""
