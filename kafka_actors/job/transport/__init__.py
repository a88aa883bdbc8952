"""Transport of record bytes from a connection actor to the workers of its node: a Unix socket and shared memory."""
