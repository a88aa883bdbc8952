"""Decisions of fetching, without IO: time and randomness come in, requests and next wake-up times go out."""
