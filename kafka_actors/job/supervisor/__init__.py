"""The supervisor: starts, watches and replaces a job's actors, and says how many workers there should be."""
