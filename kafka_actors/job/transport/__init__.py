"""The transport of record bytes and messages between a job's actors: shared memory on a node, links beyond it."""
