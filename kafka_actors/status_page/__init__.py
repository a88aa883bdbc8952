"""A job's status page: what it says as data, how it remembers the last minutes, and the server that gives it out.

Nothing here knows Ray or asks anything of a job: who runs one hands over what there is, once a second.
"""
