"""Status page of a job: the page itself, the history of its plots, and the server that answers requests.

Nothing here imports Ray or calls a job: the process of the supervisor hands over a `JobStatus` once a second.
"""
