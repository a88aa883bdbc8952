"""A consumer group member as actors on Ray: `Job` and `RunningJob`, and behind them the supervisor, the metadata
and coordinator actors, a connection actor for each broker and node, and the workers."""

from .autoscale import Autoscale
from .job import Job, RunningJob
from .status import JobStatus, WorkerStatus

__all__ = ["Autoscale", "Job", "JobStatus", "RunningJob", "WorkerStatus"]
