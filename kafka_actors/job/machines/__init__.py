"""Machines that the supervisor or coordinator shares with workers: they decide, without IO; time is passed in."""
