"""Backfill: the history of a pipeline's topics on Spark, then the pipeline live on Ray, with no record lost or read twice between."""

from .backfill import Backfill
from .machines.handover_plan import HandoverPlan, PlannedPartition, PlannedTopic

__all__ = ["Backfill", "HandoverPlan", "PlannedPartition", "PlannedTopic"]
