"""A worker: takes orders, fetches, calls the user's function, commits."""
