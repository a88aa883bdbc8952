"""Machines of a worker: they decide, without IO; time is passed in."""
